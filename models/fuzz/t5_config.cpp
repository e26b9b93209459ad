// The input is config.json and generation_config.json of a T5 model.
#include "fuzz.hpp"
#include "t5/config.hpp"

using namespace headlane;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static fuzz::InputFolder<2> input({"config.json", "generation_config.json"});
  input.write(fuzz::text_of(data, size));
  fuzz::expect_checkpoint_error([&] {
    const models::T5Config config = models::internal::read_t5_config(input.path());
    const bool sizes = config.vocab_size >= 2 && config.d_model >= 1 && config.num_heads >= 1 && config.num_layers >= 1;
    if (!sizes || config.pad_token_id < 0 || config.pad_token_id >= config.vocab_size) fuzz::found("sizes", "");
    for (const Index token : config.eos_token_ids)
      if (token < 0 || token >= config.vocab_size) fuzz::found("eos_token_id", std::to_string(token));
  });
  return 0;
}
