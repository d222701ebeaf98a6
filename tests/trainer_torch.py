"""Proves that hkt-train computes what PyTorch computes: the same weights and batches give the same loss, gradients and AdamW steps.

hkt-train --dump writes its first weights and, for each step, its batches, loss, norm and gradients. The same model is built here in fp64
from the same numbers and trained on the same batches. Called by test_trainer_torch.sh: trainer_torch.py HKT_TRAIN TEXT.
"""
import math
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn.functional as F

LAYERS, WIDTH, LENGTH, STEPS = 2, 48, 70, 20  # 70 positions: a full band of attention rows and a cut one
RATE, LEAST, WARMUP, DECAY, CLIP = 1e-2, 1e-3, 2, 0.1, 1.0
FLAGS = f"""--num-layers {LAYERS} --hidden-size {WIDTH} --seq-length {LENGTH} --init-method-std 0.1
    --micro-batch-size 3 --global-batch-size 6 --train-iters {STEPS} --lr {RATE} --min-lr {LEAST} --lr-warmup-iters {WARMUP}
    --weight-decay {DECAY} --clip-grad {CLIP} --eval-interval 0 --sample-tokens 0 --make-vocab-size-divisible-by 1"""
TYPES = {b"i32": numpy.int32, b"f32": numpy.float32, b"f64": numpy.float64}


def records(path):
    with open(path, "rb") as file:
        while line := file.readline():
            name, kind, rows, cols = line.split()
            shape = int(rows), int(cols)
            values = numpy.frombuffer(file.read(shape[0] * shape[1] * TYPES[kind]().itemsize), TYPES[kind])
            yield name.decode(), torch.from_numpy(values.reshape(shape).copy())


def mask(scores):
    return scores.masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -math.inf)


class Gpt2:
    flags, heads, tensors = "--num-attention-heads 3", 3, 2 + 12 * LAYERS + 2

    def norm(self, w, name, x):
        return F.layer_norm(x, (WIDTH,), w[name + ".weight"][0], w[name + ".bias"][0], 1e-5)

    def linear(self, w, name, x):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"][0])

    def embed(self, w, token):
        return w["wte.weight"][token] + w["wpe.weight"]

    def attention(self, qkv):
        size = WIDTH // self.heads
        heads = qkv.view(-1, LENGTH, self.heads, 3, size)
        q, k, v = (heads[:, :, :, i].transpose(1, 2) for i in range(3))  # queries, keys, values lie together for each head
        return (mask(q @ k.transpose(2, 3) / math.sqrt(size)).softmax(-1) @ v).transpose(1, 2).reshape(-1, LENGTH, WIDTH)

    def activation(self, up):
        return 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))

    def head(self, w):
        return w["wte.weight"]

    def mean_loss(self, w, token, target):
        x = self.embed(w, token)
        for layer in range(LAYERS):
            h = f"h.{layer}."
            mixed = self.attention(self.linear(w, h + "attn.c_attn", self.norm(w, h + "ln_1", x)))
            x = x + self.linear(w, h + "attn.c_proj", mixed)
            up = self.linear(w, h + "mlp.c_fc", self.norm(w, h + "ln_2", x))
            x = x + self.linear(w, h + "mlp.c_proj", self.activation(up))
        logits = self.norm(w, "ln_f", x) @ self.head(w).T
        return F.cross_entropy(logits.reshape(-1, 256), target.reshape(-1))


class Llama(Gpt2):
    """Gates, root-mean-square norms, rotary positions, two groups of queries, no biases, a head of its own."""

    heads, groups, tensors = 4, 2, 1 + 6 * LAYERS + 2
    flags = """--num-attention-heads 4 --group-query-attention --num-query-groups 2 --swiglu --normalization RMSNorm --disable-bias-linear
        --position-embedding-type rope --untie-embeddings-and-output-weights"""

    def norm(self, w, name, x):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w[name + ".weight"][0]

    def linear(self, w, name, x):
        return F.linear(x, w[name + ".weight"])

    def embed(self, w, token):
        return w["wte.weight"][token]

    def rotate(self, x):
        half = x.shape[-1] // 2
        angle = torch.arange(LENGTH).double()[:, None] * 10000.0 ** (-torch.arange(half).double() / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

    def attention(self, qkv):
        size, each = WIDTH // self.heads, self.heads // self.groups
        parts = qkv.view(-1, LENGTH, self.groups, each + 2, size).permute(0, 2, 3, 1, 4)  # batch, group, which, place
        q, k, v = self.rotate(parts[:, :, :each]), self.rotate(parts[:, :, each : each + 1]), parts[:, :, each + 1 :]
        mixed = mask(q @ k.transpose(-1, -2) / math.sqrt(size)).softmax(-1) @ v
        return mixed.permute(0, 3, 1, 2, 4).reshape(-1, LENGTH, WIDTH)

    def activation(self, up):
        gate, through = up.chunk(2, -1)
        return F.silu(gate) * through

    def head(self, w):
        return w["lm_head.weight"]


def rate(step):
    if step <= WARMUP:
        return RATE * step / WARMUP
    return LEAST + (RATE - LEAST) * 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


class Steps:
    """Follows the records of a run and compares as they come."""

    def __init__(self, model):
        self.model = model
        self.weight, self.token, self.target, self.gradient, self.step, self.checks, self.worst = {}, [], [], {}, 0, 0, 0

    def compare(self, what, mine, reference, tolerance):
        mine = mine.double()
        if what.endswith("c_attn.bias"):  # a bias on the keys shifts all scores alike: its gradient is rounding, which Adam blows up
            mine, reference = (a.view(self.model.heads, 3, -1)[:, [0, 2]] for a in (mine, reference))
        scale = max(float(reference.norm()), 1e-30)
        error = float((mine - reference).norm()) / scale
        self.checks += 1
        self.worst = max(self.worst, error / tolerance)
        if not error <= tolerance:
            sys.exit(f"FAIL step {self.step}: {what}: {error:.2e} off, {tolerance:.0e} allowed")
        return error

    def train(self):
        """One step of the reference, on the batches read so far."""
        if self.step == 0:
            matrices = [w for w in self.weight.values() if len(w) > 1]
            vectors = [w for w in self.weight.values() if len(w) == 1]
            self.adamw = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}],
                                           lr=RATE, betas=(0.9, 0.95), eps=1e-8)
        self.step += 1
        self.adamw.zero_grad()
        self.loss = self.model.mean_loss(self.weight, torch.cat(self.token).long(), torch.cat(self.target).long())
        self.loss.backward()
        self.token, self.target = [], []

    def update(self):
        for group in self.adamw.param_groups:
            group["lr"] = rate(self.step)
        torch.nn.utils.clip_grad_norm_(self.weight.values(), CLIP)
        self.adamw.step()

    def read(self, name, value):
        prefix, _, tensor = name.partition(".")
        if prefix == "before":
            self.weight[tensor] = value.double().requires_grad_()
        elif prefix in ("token", "target"):
            getattr(self, prefix).append(value)
        elif prefix == "gradient":
            if self.token:
                self.train()
            # Later steps start from weights that have drifted apart by rounding: their gradients may differ a little more.
            self.compare(name, value, self.weight[tensor].grad, 1e-5 if self.step == 1 else 1e-4)
        elif prefix == "loss":
            self.compare(name, value, self.loss.detach(), 1e-6)
        elif prefix == "norm":
            reference = torch.sqrt(sum((w.grad**2).sum() for w in self.weight.values()))
            self.compare(name, value, reference, 1e-5)
            self.update()
        elif prefix == "after":
            self.compare(name, value, self.weight[tensor].detach(), 1e-4)


def run(model):
    program, text = sys.argv[1:]
    with tempfile.NamedTemporaryFile() as dump:
        flags = (FLAGS + " " + model.flags).split()
        subprocess.run([program, "--data-path", text, "--dump", dump.name, *flags], check=True, stdout=subprocess.DEVNULL)
        steps = Steps(model)
        for name, value in records(dump.name):
            steps.read(name, value)
    if steps.step != STEPS or steps.checks != STEPS * (model.tensors + 2) + model.tensors:
        sys.exit(f"FAIL: {steps.step} steps and {steps.checks} comparisons in the dump")
    print(f"PASS: {type(model).__name__}, {steps.checks} comparisons over {STEPS} steps with PyTorch {torch.__version__}; "
          f"the worst at {100 * steps.worst:.0f} % of its tolerance")


run(Gpt2())
run(Llama())
