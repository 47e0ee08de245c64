// Makes a normalizer, a pre-tokenizer or a decoder from a function object.
#pragma once

#include "ground/support/Result.h"

#include <functional>
#include <memory>
#include <vector>

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
  // Returns an Interface that applies all `steps`, one after the other.
  static std::unique_ptr<Interface> sequence(std::vector<std::unique_ptr<Interface>> steps) {
    auto shared = std::make_shared<std::vector<std::unique_ptr<Interface>>>(std::move(steps));
    return make([shared](Arguments... arguments) -> Result<void> {
      for (const auto &step : *shared)
        LMC_TRY(step->apply(arguments...));
      return {};
    });
  }
  Result<void> apply(Arguments... arguments) const override { return body(arguments...); }

private:
  Body body;
};

} // namespace lmc
