#include "core/message.hpp"

#include <charconv>
#include <iterator>

namespace headlane::internal {

// Weak, for the libraries of models have it, too.
[[gnu::weak]] std::string message_of(std::initializer_list<MessagePart> parts) {
  std::string message;
  for (const MessagePart& part : parts) {
    const auto number = static_cast<std::size_t>(part.number);
    switch (part.kind) {
      case MessagePart::Kind::text:
        message += std::string_view(part.text, number);
        break;
      case MessagePart::Kind::shape:
        message += '[';
        for (std::size_t axis = 0; axis < number; ++axis) {
          if (axis > 0) message += ", ";
          message += std::to_string(part.shape[axis]);
        }
        message += ']';
        break;
      case MessagePart::Kind::integer:
        message += std::to_string(part.number);
        break;
      case MessagePart::Kind::natural:
        message += std::to_string(number);
        break;
      case MessagePart::Kind::real:
        char digits[320];  // of the largest number, its sign and six decimals
        message.append(digits, std::to_chars(digits, std::end(digits), std::bit_cast<double>(part.number),
                                             std::chars_format::fixed, 6)
                                   .ptr);
    }
  }
  return message;
}

}  // namespace headlane::internal
