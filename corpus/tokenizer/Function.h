// Normalizers and decoders that are one function.
#pragma once

#include "ground/support/Result.h"

#include <functional>
#include <memory>

namespace lmc {

// An Interface with apply(arguments), whose body is given.
template <typename Interface, typename... Arguments> class Function : public Interface {
public:
  using Body = std::function<Result<void>(Arguments...)>;
  static std::unique_ptr<Interface> make(Body body) {
    auto made = std::make_unique<Function>();
    made->body = std::move(body);
    return made;
  }
  Result<void> apply(Arguments... arguments) const override { return body(arguments...); }

private:
  Body body;
};

} // namespace lmc
