// The input is the JSON of a folder of sentence-transformers. Its weights are missing, so that
// each input ends in an error.
#include "fuzz.hpp"

#include <headlane/models/bert.hpp>

using namespace headlane;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::InputFolder<6> input({"config.json", "modules.json", "1_Pooling/config.json",
                                     "sentence_bert_config.json", "tokenizer_config.json",
                                     "config_sentence_transformers.json"});
  input.write(fuzz::text_of(data, size));
  fuzz::expect_checkpoint_error([&] { const models::Bert bert(input.path()); });
  return 0;
}
