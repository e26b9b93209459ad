#include "layers/state_dict_writer.hpp"

#include <cstddef>
#include <iterator>

namespace headlane::internal {

void StateDictWriter::add(std::string_view name, const std::vector<float>& vector) {
  if (!vector.empty()) dict_[this->name(name)] = {{std::ssize(vector)}, vector};
}

void StateDictWriter::append(std::string_view name, const PackedMatrix& packed, Index first, Index count) {
  OwnedTensor& tensor = dict_[this->name(name)];
  const Index width = packed.rows();
  std::vector<float> all(static_cast<std::size_t>(packed.columns() * width));
  packed.unpack(View<float, 2>(all.data(), {packed.columns(), width}).transposed());
  const auto begin = all.begin() + first * width;
  tensor.data.insert(tensor.data.end(), begin, begin + count * width);
  tensor.shape = {(tensor.shape.empty() ? 0 : tensor.shape[0]) + count, width};
}

}  // namespace headlane::internal
