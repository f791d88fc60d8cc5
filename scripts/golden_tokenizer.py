#!/usr/bin/env python3
"""Writes tests/fixtures/smollm2_tokenizer_golden.json: texts and their token ids, and the part
of the vocabulary that these texts can touch, so that a test needs no model file.

    scripts/golden_tokenizer.py MODEL.gguf [OUTPUT.json]

An independent byte-level BPE, straight from the metadata of the GGUF file: the words are split
by a hand-written scanner and merged by the quadratic textbook loop. It shares no code with the
server. Needs the PyPI package `gguf` (0.19).
"""
import hashlib
import json
import sys
import unicodedata

from gguf import GGUFReader

TEXTS = [
    "",
    " ",
    "a",
    "Hello, world!",
    "Hello,  world!   Three spaces.",
    "  leading and trailing  ",
    "The capital of France is",
    "The queue was long and",
    "it's we're I'll don't they've I'd 'em 's'S",
    "I'M SURE IT'S FINE",
    "0123456789",
    "3300.0 429 1e-5 0x1F",
    "year 2024, 1st of May; v1.2.3",
    "½ Ⅳ ² 日月 ٣",
    "a1b2 c3",
    "line\nbreak\r\nand\ttab\n\n\nend\n",
    "   \n  \n indented",
    "trailing spaces   \n",
    "naïve café é über Straße",
    "cafe\u0301 e\u0301",
    "潮汐每天来两次。",
    "日本語のテキスト、カタカナ",
    "Привет, мир! Ещё раз.",
    "مرحبا بالعالم",
    "שלום עולם",
    "สวัสดีชาวโลก",
    "한국어 문장",
    "🌊👨‍👩‍👧 🇩🇪 👍🏽",
    "🌊🌊🌊",
    "fn main() { println!(\"{x}\"); }",
    "for (int i = 0; i < n; ++i) a[i] += b[i] * 2;",
    "https://example.com/path?q=1&r=%20#frag",
    "{\"a\": [1, 2.5, null], \"b\": \"c\\n\"}",
    "!!!???...---___***",
    "snake_case camelCase PascalCase SCREAMING_CASE",
    "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n",
    "<|endoftext|>",
    "a<|im_end|>b<|im_en d|>",
    "<repo_name>x<file_sep>y",
    "\u00a0non\u00a0breaking\u2003em\u2028line\u3000ideographic",
    "\ufeffbom\u200bzero\u200dwidth",
    "tab\x01\x02control\x07",
    "\x04dropped\x14",
    "𐍈 𝔘𝔫𝔦 \U0010fffd",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "Once upon a time, in a land far away, there lived a small language model that counted tides.",
]

# Unicode's White_Space property, which is not what str.isspace says.
SPACES = set("\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {
    chr(c) for c in range(0x2000, 0x200B)
}
CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def kind(char):
    if char in SPACES:
        return "space"
    category = unicodedata.category(char)[0]
    return {"L": "letter", "N": "number"}.get(category, "other")


def run_end(text, at):
    end = at
    while end < len(text) and kind(text[end]) == kind(text[at]):
        end += 1
    return end


def next_word(text, at):
    """GPT-2's rule: where the word that starts at `at` ends."""
    for contraction in CONTRACTIONS:
        if text.startswith(contraction, at):
            return at + len(contraction)
    if text[at] == " " and at + 1 < len(text) and kind(text[at + 1]) != "space":
        return run_end(text, at + 1)
    if kind(text[at]) != "space":
        return run_end(text, at)
    end = run_end(text, at)
    # Before other text, the last space of a run belongs to what follows.
    return end - 1 if end < len(text) and end - at > 1 else end


def gpt2_words(text):
    at = 0
    while at < len(text):
        end = next_word(text, at)
        yield text[at:end]
        at = end


def words(text):
    """The pre-tokenizer `smollm`: every digit alone, GPT-2's rule in between."""
    part = ""
    for char in text:
        if kind(char) == "number":
            yield from gpt2_words(part)
            yield char
            part = ""
        else:
            part += char
    yield from gpt2_words(part)


def byte_alphabet():
    printable = [*range(33, 127), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable}
    table.update({b: chr(256 + i) for i, b in enumerate(hidden)})
    return table


class Tokenizer:
    def __init__(self, path):
        fields = GGUFReader(path).fields
        get = lambda key: fields["tokenizer.ggml." + key].contents()
        assert (get("model"), get("pre")) == ("gpt2", "smollm")
        self.ids = {token: i for i, token in enumerate(get("tokens"))}
        self.ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(get("merges"))}
        types = get("token_type")
        self.control = [t for t, i in self.ids.items() if types[i] == 3]
        self.alphabet = byte_alphabet()

    def word(self, word):
        symbols = [self.alphabet[b] for b in word.encode()]
        symbols = [s for s in symbols if s in self.ids]  # bytes without a token are dropped
        while len(symbols) > 1:
            pairs = list(zip(symbols, symbols[1:]))
            best = min(pairs, key=lambda p: self.ranks.get(p, len(self.ranks)))
            if best not in self.ranks:
                break
            at = pairs.index(best)
            symbols[at : at + 2] = ["".join(best)]
        return [self.ids[s] for s in symbols]

    def encode(self, text):
        found = [(text.find(t), -len(t), t) for t in self.control if t in text]
        if found:
            at, _, token = min(found)
            before, after = text[:at], text[at + len(token) :]
            return self.encode(before) + [self.ids[token]] + self.encode(after)
        return [i for word in words(text) for i in self.word(word)]


def needed(tokenizer, texts):
    """The tokens and merges that could apply to the texts: those that occur inside a word."""
    inside = set(tokenizer.control)
    for text in texts:
        for word in {*words(text), text}:
            spelled = "".join(tokenizer.alphabet[b] for b in word.encode())
            for start in range(len(spelled)):
                for end in range(start + 1, min(len(spelled), start + 48) + 1):
                    inside.add(spelled[start:end])
    tokens = {token: i for token, i in tokenizer.ids.items() if token in inside}
    merges = [" ".join(pair) for pair in tokenizer.ranks if "".join(pair) in tokens]
    return tokens, merges


def main():
    path = sys.argv[1]
    output = sys.argv[2] if len(sys.argv) > 2 else "tests/fixtures/smollm2_tokenizer_golden.json"
    tokenizer = Tokenizer(path)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    cases = [{"text": text, "ids": tokenizer.encode(text)} for text in TEXTS]
    tokens, merges = needed(tokenizer, TEXTS)
    head = {
        "generated_by": "scripts/golden_tokenizer.py",
        "model_sha256": digest,
        "vocab": len(tokenizer.ids),
        "control": tokenizer.control,
        "tokens": tokens,
        "merges": merges,
    }
    with open(output, "w", encoding="utf-8") as file:
        lines = ",\n".join("  " + json.dumps(case) for case in cases)
        head = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items())
        file.write(f'{{{head},\n"cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
