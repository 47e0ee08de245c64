// Makes a normalizer or a decoder of a function object.
#pragma once

#include "ground/support/Result.h"

#include <functional>
#include <memory>

namespace lmc {

// Implements an Interface whose only function, apply(arguments), calls the function object `body`.
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
