#!/usr/bin/env python3
"""Makes tests/fixtures/models/tiny-gemma3: a Gemma 3 text model of seeded random weights, and what
the reference implementation (Hugging Face transformers, CPU, float32) computes from it.

    python3 -m venv VENV
    VENV/bin/pip install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0 numpy==2.4.6
    VENV/bin/python scripts/golden_gemma3.py           # write the folder
    VENV/bin/python scripts/golden_gemma3.py verify    # compute again, compare with the folder
    VENV/bin/python scripts/golden_gemma3.py search N  # the least greedy margin of N seeds

One thread, eager attention, batches of one: a second run on the same kind of processor writes the
same bytes. Tokenizer and prompts are those of tests/fixtures/models/tiny-llama. The tensors are
named as in that folder: pN.input_ids, .probe_positions, .logits, .chunked_odd.logits, .greedy_*,
.trace.* (attn_out and mlp_out before the norms that follow them) and, for short prompts, .pool.*.
"""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig

MODELS = Path(__file__).resolve().parent.parent / "tests/fixtures/models"
FOLDER = MODELS / "tiny-gemma3"
DONOR = MODELS / "tiny-llama"
SEED = 5
GREEDY = 32
# Traces of longer prompts and their K/V rows are kept at the probe positions only, or not at all.
SHORT = 20
CHUNKS = [3, 1, 57, 5, 130, 2]
# Neither the window nor the scale of the scores is a number that anything else here has.
WINDOW = 20
PATTERN = 3

torch.set_num_threads(1)
torch.set_grad_enabled(False)
torch.use_deterministic_algorithms(True)
transformers.logging.set_verbosity_error()


def config(**changes):
    """Seven layers, the third and the sixth of which see everything."""
    donor = json.loads((DONOR / "config.json").read_text())
    layers = 7
    kind = lambda i: "full_attention" if (i + 1) % PATTERN == 0 else "sliding_attention"
    kinds = [kind(i) for i in range(layers)]
    fields = dict(
        vocab_size=donor["vocab_size"], hidden_size=64, intermediate_size=160,
        num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, query_pre_attn_scalar=24,
        sliding_window=WINDOW, layer_types=kinds, sliding_window_pattern=PATTERN,
        max_position_embeddings=4096, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        },
        bos_token_id=donor["bos_token_id"], eos_token_id=donor["eos_token_id"],
        pad_token_id=donor["pad_token_id"], attn_implementation="eager",
    )
    return Gemma3TextConfig(**{**fields, **changes})


def build(seed, **changes):
    """Weights that give logits of a realistic spread and attention that prefers some positions."""
    model = Gemma3ForCausalLM(config(**changes)).float().eval()
    generator = torch.Generator().manual_seed(seed)

    def fill(tensor, deviation, mean=0.0):
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * deviation + mean)

    for name, tensor in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            fill(tensor, 0.15, 0.5)
        elif "post_" in name:
            fill(tensor, 0.15, 0.6)
        elif name == "model.norm.weight":
            fill(tensor, 0.15, 1.5)
        elif name.endswith("norm.weight"):
            fill(tensor, 0.15)
        elif "embed_tokens" in name:
            # Small, or the tied head would repeat each token for ever.
            fill(tensor, 0.12)
        else:
            fill(tensor, 1.4 / tensor.shape[1] ** 0.5)
    generation = model.generation_config
    generation.bos_token_id = model.config.bos_token_id
    generation.eos_token_id = model.config.eos_token_id
    generation.pad_token_id = model.config.pad_token_id
    generation.do_sample = False
    return model


def prompts():
    donor = load_file(DONOR / "golden.safetensors")
    return [donor[f"p{i}.input_ids"].tolist() for i in range(4)]


def probes(length):
    """Three positions in the middle and the last one."""
    return sorted({length // 4, length // 2, 3 * length // 4, length - 1})


def forward(model, ids, cache=None):
    inputs = torch.tensor([ids])
    return model(input_ids=inputs, cache=cache, use_cache=cache is not None).logits[0]


def traced(model, ids):
    """The logits of a prompt in one go without a cache, and what lies between."""
    seen, hooks = {}, []

    def keep(module, name):
        def hook(_module, _inputs, output):
            seen[name] = (output[0] if isinstance(output, tuple) else output)[0].clone()

        hooks.append(module.register_forward_hook(hook))

    keep(model.model.embed_tokens, "embed")
    for i, layer in enumerate(model.model.layers):
        keep(layer, f"layer{i}.out")
        keep(layer.self_attn, f"layer{i}.attn_out")
        keep(layer.mlp, f"layer{i}.mlp_out")
    keep(model.model.norm, "final_norm")
    logits = forward(model, ids)
    for hook in hooks:
        hook.remove()
    return logits, seen


def chunked(model, ids):
    cache, rows, start, step = DynamicCache(config=model.config), [], 0, 0
    while start < len(ids):
        end = start + CHUNKS[step % len(CHUNKS)]
        rows.append(forward(model, ids[start:end], cache))
        start, step = end, step + 1
    return torch.cat(rows)


def greedy(model, ids):
    """Continues greedily through the cache; stop tokens do not stop."""
    cache = DynamicCache(config=model.config)
    row, tokens, rows = forward(model, ids, cache)[-1], [], []
    for _ in range(GREEDY):
        rows.append(row)
        tokens.append(int(row.argmax()))
        row = forward(model, tokens[-1:], cache)[-1]
    return tokens, torch.stack(rows)


def margin(rows):
    best = rows.topk(2, -1).values
    return best[:, 0] - best[:, 1]


def checksum(tensor):
    tensor = tensor.double()
    return [float(tensor.sum()), float(tensor.abs().sum()), float(tensor.square().sum().sqrt())]


def derive(model):
    tensors, facts = {}, []
    for number, ids in enumerate(prompts()):
        length, at = len(ids), probes(len(ids))
        logits, seen = traced(model, ids)
        tokens, rows = greedy(model, ids)
        again = forward(model, ids + tokens[:-1])[length - 1 :]
        values = {
            "input_ids": torch.tensor(ids, dtype=torch.int32),
            "probe_positions": torch.tensor(at, dtype=torch.int32),
            "logits": logits[at],
            "greedy_ids": torch.tensor(tokens, dtype=torch.int32),
            "greedy_logits": rows,
            "greedy_margin": margin(rows),
        }
        fact = {
            "prompt": number,
            "length": length,
            "input_ids": ids,
            "probe_positions": at,
            "greedy_ids": tokens,
            "greedy_min_margin": float(margin(rows).min()),
            "greedy_distinct_tokens": len(set(tokens)),
            "max_abs_logit": float(logits.abs().max()),
            "logit_std": float(logits.std()),
            "checksums": {name: checksum(tensor) for name, tensor in seen.items()},
            "diff": {"decode_vs_recompute_logits": float((again - rows).abs().max())},
        }
        if length > 1:
            pieces = chunked(model, ids)
            values["chunked_odd.logits"] = pieces[at]
            fact["diff"]["chunked_odd_logits"] = float((pieces - logits).abs().max())
        for name, tensor in seen.items():
            values[f"trace.{name}"] = tensor if length <= SHORT else tensor[at]
        if length <= SHORT:
            cache = DynamicCache(config=model.config)
            forward(model, ids, cache)
            for i, layer in enumerate(cache.layers):
                values[f"pool.layer{i}.k"] = layer.keys[0]
                values[f"pool.layer{i}.v"] = layer.values[0]
        tensors |= {f"p{number}.{name}": tensor.contiguous() for name, tensor in values.items()}
        facts.append(fact)
    return tensors, facts


def window_counts(model, seed):
    """How far the last logits move when each row sees one position more or fewer."""
    ids = prompts()[2]
    exact = forward(model, ids)[-1]
    moved = {}
    for window in (WINDOW - 1, WINDOW + 1):
        other = forward(build(seed, sliding_window=window), ids)[-1]
        moved[str(window)] = float((other - exact).abs().max())
    assert min(moved.values()) > 0.05, f"an error by one in the window would not show: {moved}"
    return moved


def write():
    FOLDER.mkdir(parents=True, exist_ok=True)
    model = build(SEED)
    model.save_pretrained(FOLDER)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(DONOR / name, FOLDER / name)
    tensors, facts = derive(reload())
    save_file(tensors, FOLDER / "golden.safetensors")
    golden = {
        "checkpoint": FOLDER.name,
        "compute_dtype": "float32",
        "versions": {
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "model_sha256": hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest(),
        "logits_moved_by_another_window": window_counts(model, SEED),
        "prompts": facts,
    }
    (FOLDER / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


def reload():
    kind = dict(dtype=torch.float32, attn_implementation="eager")
    return Gemma3ForCausalLM.from_pretrained(FOLDER, **kind).eval()


def verify():
    stored, (found, _) = load_file(FOLDER / "golden.safetensors"), derive(reload())
    assert set(stored) == set(found), set(stored) ^ set(found)
    for name, tensor in stored.items():
        assert torch.equal(tensor, found[name]), name
    print(f"{len(stored)} tensors are equal, bit for bit")


def search(count):
    for seed in range(1, count + 1):
        model = build(seed)
        results = [greedy(model, ids) for ids in prompts()]
        least = min(float(margin(rows).min()) for _, rows in results)
        kinds = [len(set(tokens)) for tokens, _ in results]
        print(f"seed {seed}: least margin {least:.4f}, different tokens {kinds}")


if __name__ == "__main__":
    command = sys.argv[1] if len(sys.argv) > 1 else "write"
    if command == "write":
        write()
    elif command == "verify":
        verify()
    elif command == "search":
        search(int(sys.argv[2]))
    else:
        sys.exit(__doc__)
