// The live objects of one kind that the program holds handles of.
#pragma once

#include "test/hostdriver/Failure.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace lmc::hostdriver {

template <typename T> class Registry {
public:
  T *add(std::unique_ptr<T> object) {
    objects.push_back(std::move(object));
    return objects.back().get();
  }
  // Fails with CUDA_ERROR_INVALID_HANDLE if `handle` is no live object of this kind.
  T &check(T *handle) {
    if (!has(handle))
      refuse(CUDA_ERROR_INVALID_HANDLE);
    return *handle;
  }
  bool has(const T *handle) const { return find(handle) != objects.end(); }
  void remove(T *handle) { objects.erase(find(handle)); }
  size_t size() const { return objects.size(); }
  auto begin() const { return objects.begin(); }
  auto end() const { return objects.end(); }

private:
  auto find(const T *handle) const {
    return std::find_if(objects.begin(), objects.end(),
                        [&](const auto &object) { return object.get() == handle; });
  }
  std::vector<std::unique_ptr<T>> objects;
};

} // namespace lmc::hostdriver
