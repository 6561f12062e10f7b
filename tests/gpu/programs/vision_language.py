# SPDX-License-Identifier: Apache-2.0
"""A picture and a question through a small LLaVA-like model with random weights."""

from common import run, seeded_torch

torch = seeded_torch()
PICTURE, PICTURE_TOKENS = 999, 16  # the token that stands for a patch; patches of 64 x 64 pixels


def model() -> "torch.nn.Module":
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig
    from transformers import LlavaForConditionalGeneration as Llava

    vision = CLIPVisionConfig(
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=64,
        patch_size=16,
        projection_dim=128,
    )
    text = LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=8,
        vocab_size=1000,
    )
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_id=PICTURE, vision_feature_layer=-2
    )
    return Llava(config).to("cuda").eval()


def main() -> list["torch.Tensor"]:
    llava = model()
    words = torch.randint(0, PICTURE, (2, 8), device="cuda")
    patches = torch.full((2, PICTURE_TOKENS), PICTURE, device="cuda")
    pixels = torch.randn(2, 3, 64, 64, device="cuda")
    with torch.no_grad():
        return [llava(input_ids=torch.cat([patches, words], 1), pixel_values=pixels).logits]


run(main)
