"""Inputs for models of which only the names of forward's arguments and the configuration are known."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from transformers import GenerationMixin, PreTrainedModel

from . import tiny

LENGTH, TARGET, BATCH = 11, 7, 2
LEFT = torch.tensor([[0] * 4 + [1] * (LENGTH - 4), [1] * LENGTH])
MASKS = {"no mask": None, "left padding": LEFT, "right padding": LEFT.flip(1)}
Inputs = dict[str, Any]


class Kinds:
    """Inputs of a model, by kind; each method returns inputs to try, the likeliest first."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.config = model.config
        self.takes = set(inspect.signature(model.forward).parameters)
        self.generator = torch.Generator().manual_seed(0)
        self.decoder = {"decoder_input_ids": self.ids(TARGET)} if "decoder_input_ids" in self.takes else {}

    def random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def ids(self, length: int) -> torch.Tensor:
        return torch.randint(3, 80, (BATCH, length), generator=self.generator)

    def field(self, *names: str, default: Any) -> Any:
        return tiny.field(self.config, *names, default=default)

    def image(self, *, frames: bool = False) -> torch.Tensor:
        size = self.field("image_size", "input_size", "img_size", default=tiny.IMAGE)
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        channels = self.field("num_channels", "in_channels", "in_chans", default=3)
        batch = (BATCH, self.field("num_frames", "frames_per_clip", default=2)) if frames else (BATCH,)
        return self.random(*batch, channels, height, width)

    def patches(self) -> torch.Tensor:
        """An image as 4 x 4 flattened patches."""
        side = self.field("patch_size", default=tiny.PATCH)
        return self.random(16, 3 * self.field("temporal_patch_size", default=1) * side * side)

    def of_text(self) -> list[Inputs]:
        if "input_ids" not in self.takes:
            return []
        ids = {"input_ids": self.ids(LENGTH)}
        found = [{**ids, **self.decoder}, ids]
        if "bbox" in self.takes:
            boxes = {"bbox": torch.zeros(BATCH, LENGTH, 4, dtype=torch.long)}
            found = [{**one, **boxes} for one in found] + found
        if "pixel_values" in self.takes:
            found.append({**ids, "pixel_values": self.image()})
        if "input_features" in self.takes:
            mel = self.field("num_mel_bins", "n_mels", default=80)
            found.append({**ids, "input_features": self.random(BATCH, 1, 1024, mel)})
        return found

    def of_images(self) -> list[Inputs]:
        found = []
        if "pixel_values" in self.takes:
            found = [
                {"pixel_values": self.image(), **self.decoder},
                {"pixel_values": self.image(frames=True)},
            ]
        if "pixel_values_videos" in self.takes:
            found.append({"pixel_values_videos": self.image(frames=True)})
        for grid in ("image_grid_thw", "grid_thw"):
            for pixels in ("pixel_values", "hidden_states"):
                if {grid, pixels} <= self.takes:
                    found.append({pixels: self.patches(), grid: torch.tensor([[1, 4, 4]])})
        if "flattened_patches" in self.takes:
            size = self.field("patch_embed_hidden_size", default=768) + 2
            found.append({"flattened_patches": self.random(BATCH, LENGTH, size), **self.decoder})
        return found

    def of_sound(self) -> list[Inputs]:
        found = []
        mel = self.field("num_mel_bins", "n_mels", "feature_projection_input_dim", "input_dim", default=80)
        if "decoder_input_values" in self.takes:
            found.append(
                {"input_values": self.ids(LENGTH), "decoder_input_values": self.random(BATCH, TARGET, mel)}
            )
        if "input_values" in self.takes:
            found += [{"input_values": self.random(BATCH, n), **self.decoder} for n in (4000, 16000)]
            found += [{"input_values": self.random(BATCH, 1, n)} for n in (4000, 16000)]
            found.append({"input_values": self.random(BATCH, self.field("max_length", default=64), mel)})
        if "input_features" in self.takes:
            for frames in (2 * self.field("max_source_positions", default=32), 100, 1024):
                for shape in ((mel, frames), (frames, mel)):
                    one = {"input_features": self.random(BATCH, *shape), **self.decoder}
                    found.append(one)
                    if "input_features_mask" in self.takes:
                        found.append(
                            {**one, "input_features_mask": torch.ones(BATCH, frames, dtype=torch.long)}
                        )
            found.append({"input_features": self.random(BATCH, 1, 1024, mel)})
        return found

    def of_numbers(self) -> list[Inputs]:
        found = []
        if "past_values" in self.takes:
            length = self.field("context_length", default=32)
            channels = self.field("num_input_channels", default=1)
            found += [
                {"past_values": self.random(BATCH, length, channels)},
                {"past_values": self.random(BATCH, length)},
            ]
        width = self.field("hidden_size", "d_model", default=tiny.WIDTH)
        if "inputs_embeds" in self.takes:
            found.append({"inputs_embeds": self.random(BATCH, LENGTH, width), **self.decoder})
        if "hidden_states" in self.takes:
            found.append({"hidden_states": self.random(BATCH, LENGTH, width)})
        return found


def inputs_of(model: PreTrainedModel) -> list[Inputs]:
    """Inputs to try, in turn, those with the model's main input first."""
    kinds = Kinds(model)
    found = kinds.of_text() + kinds.of_images() + kinds.of_sound() + kinds.of_numbers()
    main = model.main_input_name if isinstance(model.main_input_name, str) else model.main_input_name[0]
    return sorted(found, key=lambda one: main not in one)


def padded(model: PreTrainedModel, inputs: Inputs, mask: torch.Tensor | None) -> Inputs:
    """The inputs with the padding token where the mask is 0 and the end token where a text ends:
    models look for both.
    """
    inputs = copy.deepcopy(inputs)
    if mask is None:
        return inputs
    ids, padding = inputs["input_ids"], tiny.field(model.config, "pad_token_id", default=0)
    inputs["attention_mask"] = mask
    ids[mask == 0] = padding if isinstance(padding, int) and padding >= 0 else 0
    end = tiny.field(model.config, "eos_token_id")
    if isinstance(end, int) and not isinstance(model, GenerationMixin):
        ids[torch.arange(BATCH), (mask * torch.arange(1, LENGTH + 1)).argmax(1)] = end
    return inputs
