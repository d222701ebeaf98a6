"""GPT-2 124M in PyTorch on the processor for bench/versus-train: prints the seconds of each step, batch 4 x 64 tokens, AdamW.
Called as versus_torch.py fp32|bf16 THREADS STEPS LAYERS; bf16 is autocast: products in bf16, weights and optimizer in fp32."""

import contextlib
import math
import sys
import time

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, ROWS, CONTEXT, BATCH, TOKENS = 768, 12, 50304, 1024, 4, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        q, k, v = (t.view(BATCH, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2) for t in self.c_attn(x).split(WIDTH, 2))
        if hasattr(functional, "scaled_dot_product_attention"):
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
            y = ((q @ k.transpose(2, 3)) / math.sqrt(WIDTH // HEADS)).masked_fill(mask, -math.inf).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.c_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(ROWS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h, self.ln_f = nn.Sequential(*(Block() for _ in range(layers))), nn.LayerNorm(WIDTH)

    def forward(self, token, target):
        x = self.ln_f(self.h(self.wte(token) + self.wpe(torch.arange(TOKENS))))
        return functional.cross_entropy((x @ self.wte.weight.T).float().view(-1, ROWS), target.reshape(-1))


def main():
    precision, threads, steps, layers = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = Model(layers)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        token = torch.randint(0, 256, (BATCH, TOKENS + 1))
        start = time.monotonic()
        with torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
            loss = model(token[:, :-1], token[:, 1:])
        adamw.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        print(time.monotonic() - start, flush=True)


main()
