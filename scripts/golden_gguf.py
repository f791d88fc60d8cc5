#!/usr/bin/env python3
"""Reference values of a Llama GGUF file: greedy tokens and logits in float32 arithmetic.

Needs numpy and the PyPI package gguf (which reads the file and dequantises); shares no code with
the engine that is tested against its output. Usage:

    golden_gguf.py MODEL.gguf > tests/fixtures/smollm2_golden.json
"""

import hashlib
import json
import re
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

STEPS = 32
TOP = 20
STORY = (
    "The old lighthouse stood at the end of the long stone pier, and every evening its keeper "
    "climbed the narrow stairs to light the lamp. He had done so for thirty years, through storms "
    "and fog, and he knew the sound of every ship that passed. One night in late autumn, when the "
    "wind came hard from the north and the waves broke white against the rocks, he heard an engine "
    "that he did not know. He leaned out of the window and saw a small boat without lights, "
    "turning slowly in the current. There was no time to call for help, so he took the lantern "
    "from its hook and ran down to the water, where the ropes were kept, and threw"
)
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\nWrite a short haiku about the sea in winter, and then explain "
    "in one sentence what a haiku is.<|im_end|>\n<|im_start|>assistant\n"
)
CODE = "def add(a, b):\n    return a + b\n\ndef multiply(a, b):\n    # The product of"
# Text and the number of its tokens that are used.
PROMPTS = [("The capital of France is Paris", 5), (CODE, 24), (CHAT, 53), (STORY, 130)]


class Tokens:
    """Byte-level BPE out of the file's metadata; close to the model's own splitting."""

    def __init__(self, reader):
        texts = reader.fields["tokenizer.ggml.tokens"].contents()
        self.ids = {text: i for i, text in enumerate(texts)}
        merges = reader.fields["tokenizer.ggml.merges"].contents()
        self.ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        rest = [b for b in range(256) if b not in plain]
        self.alphabet = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}

    def encode(self, text):
        ids = []
        for part in re.split(r"(<\|\w+\|>)", text):
            if part in self.ids and part.startswith("<|"):
                ids.append(self.ids[part])
                continue
            for word in re.findall(r" ?[A-Za-z]+|\d| ?[^\sA-Za-z\d]+|\s+(?!\S)|\s+", part):
                ids += self.encode_word("".join(self.alphabet[b] for b in word.encode()))
        return ids

    def encode_word(self, word):
        parts = list(word)
        while len(parts) > 1:
            pairs = list(zip(parts, parts[1:]))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, 1 << 30))
            if best not in self.ranks:
                break
            at = pairs.index(best)
            parts[at : at + 2] = ["".join(best)]
        return [self.ids[part] for part in parts]


class Model:
    """Llama, one request, a growing K/V cache."""

    def __init__(self, reader):
        get = lambda key: reader.fields[f"llama.{key}"].contents()
        self.layers = get("block_count")
        self.heads = get("attention.head_count")
        self.kv_heads = get("attention.head_count_kv")
        self.eps = np.float32(get("attention.layer_norm_rms_epsilon"))
        self.weights = {
            t.name: dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors
        }
        self.embedding = self.weights["token_embd.weight"]
        self.dim = self.embedding.shape[1] // self.heads
        pairs = np.arange(0, self.dim, 2, dtype=np.float64) / self.dim
        self.frequencies = (get("rope.freq_base") ** -pairs).astype(np.float32)
        self.reset()

    def reset(self):
        self.keys = [np.zeros((0, self.kv_heads, self.dim), np.float32)] * self.layers
        self.values = list(self.keys)

    def norm(self, x, name):
        mean = np.mean(x * x, axis=-1, keepdims=True, dtype=np.float32)
        return x / np.sqrt(mean + self.eps) * self.weights[name]

    def rotate(self, x, start):
        """File layout of Llama models: pairs are neighbours."""
        positions = np.arange(start, start + len(x), dtype=np.float32)
        angles = (positions[:, None] * self.frequencies)[:, None, :]
        cos, sin = np.cos(angles), np.sin(angles)
        even, odd = x[..., 0::2], x[..., 1::2]
        return np.stack([even * cos - odd * sin, odd * cos + even * sin], -1).reshape(x.shape)

    def attend(self, layer, x):
        linear = lambda name: x @ self.weights[f"blk.{layer}.attn_{name}.weight"].T
        start = len(self.keys[layer])
        q = self.rotate(linear("q").reshape(len(x), self.heads, self.dim), start)
        k = self.rotate(linear("k").reshape(len(x), self.kv_heads, self.dim), start)
        v = linear("v").reshape(len(x), self.kv_heads, self.dim)
        self.keys[layer] = np.concatenate([self.keys[layer], k])
        self.values[layer] = np.concatenate([self.values[layer], v])
        group = self.heads // self.kv_heads
        keys = np.repeat(self.keys[layer], group, axis=1)
        values = np.repeat(self.values[layer], group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, keys) / np.float32(np.sqrt(self.dim))
        visible = np.arange(len(keys))[None, :] <= np.arange(start, start + len(x))[:, None]
        scores = np.where(visible[None], scores, -np.inf).astype(np.float32)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out = np.einsum("hqk,khd->qhd", weights, values).reshape(len(x), -1)
        return out @ self.weights[f"blk.{layer}.attn_output.weight"].T

    def mlp(self, layer, x):
        w = lambda name: self.weights[f"blk.{layer}.ffn_{name}.weight"].T
        gate = x @ w("gate")
        return (gate / (1 + np.exp(-gate)) * (x @ w("up"))) @ w("down")

    def logits(self, ids):
        """Logits after the last of `ids`, which continue what the cache holds."""
        x = self.embedding[ids]
        for layer in range(self.layers):
            x = x + self.attend(layer, self.norm(x, f"blk.{layer}.attn_norm.weight"))
            x = x + self.mlp(layer, self.norm(x, f"blk.{layer}.ffn_norm.weight"))
        x = self.norm(x[-1], "output_norm.weight")
        head = self.weights.get("output.weight", self.embedding)
        return (x @ head.T).astype(np.float32)


def golden(model, ids):
    model.reset()
    first = logits = model.logits(ids)
    greedy, margins = [], []
    for _ in range(STEPS):
        second, best = np.sort(logits)[-2:]
        margins.append(float(best - second))
        greedy.append(int(np.argmax(logits)))
        logits = model.logits(greedy[-1:])
    top = np.argsort(-first, kind="stable")[:TOP]
    wide = first.astype(np.float64)
    return {
        "ids": [int(i) for i in ids],
        "greedy_ids": greedy,
        "greedy_min_margin": round(min(margins), 4),
        "top": [[int(i), round(float(first[i]), 6)] for i in top],
        "log_sum_exp": round(float(wide.max() + np.log(np.exp(wide - wide.max()).sum())), 6),
    }


def main(path):
    reader = GGUFReader(path)
    with open(path, "rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    model, tokens = Model(reader), Tokens(reader)
    prompts = []
    for text, length in PROMPTS:
        ids = tokens.encode(text)[:length]
        assert len(ids) == length, f"{len(ids)} tokens, not {length}: {text!r}"
        prompts.append(golden(model, ids))
    lines = ",\n".join(json.dumps(prompt) for prompt in prompts)
    print(f'{{"model_sha256": "{sha256}",\n"prompts": [\n{lines}\n]}}')


if __name__ == "__main__":
    main(sys.argv[1])
