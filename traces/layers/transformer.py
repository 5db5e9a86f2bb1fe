"""Transformers of 12 layers, width 768 and 12 heads: BERT-base, GPT-2 small and ViT-B/16.

Devlin et al., NAACL'19; Radford et al., 2019; Dosovitskiy et al., ICLR'21. Attention is written out, so that its T x T
probabilities are kept for the backward pass as in the frameworks of that time. No dropout: on a CPU its masks would
be four times as large as on a GPU.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from traces.layers.convolutions import classification, images
from traces.layers.workload import Workload, chain

WIDTH, HEADS, LAYERS = 768, 12, 12


class Attention(nn.Module):
    """Self-attention of HEADS heads; ``causal``: a token sees only those before it and itself."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.project = nn.Linear(WIDTH, WIDTH)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        heads = self.qkv(x).view(batch, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        scores = (query @ key.transpose(-1, -2)) * (WIDTH // HEADS) ** -0.5
        if self.causal:
            later = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        mixed = scores.softmax(-1) @ value
        out: Tensor = self.project(mixed.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return out


class Block(nn.Module):
    """Attention and MLP, each with a residual; LayerNorm before them (GPT-2, ViT) or after the sum (BERT)."""

    def __init__(self, norm_first: bool, causal: bool = False, gelu: str = "none", eps: float = 1e-5) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = Attention(causal)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate=gelu), nn.Linear(4 * WIDTH, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for part, norm in zip((self.attention, self.mlp), self.norms, strict=True):
            x = x + part(norm(x)) if self.norm_first else norm(x + part(x))
        return x


class BertEmbeddings(nn.Module):
    """Word, position and segment; all tokens are of the first segment."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30522, WIDTH)
        self.positions = nn.Embedding(512, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, 1e-12)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        total = self.words(tokens) + self.positions(places) + self.segments(torch.zeros_like(tokens))
        out: Tensor = self.norm(total)
        return out


class GptEmbeddings(nn.Module):
    def __init__(self, vocabulary: int, context: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(context, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return out


class Patches(nn.Module):
    """Patches of 16 x 16 pixels, a class token in front, positions added."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTH, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, (size // 16) ** 2 + 1, WIDTH) * 0.02)

    def forward(self, image: Tensor) -> Tensor:
        patches = self.conv(image).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(image), -1, -1), patches], 1) + self.positions


class FirstToken(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


def bert(batch: int, tokens: int, layers: int = LAYERS) -> Workload:
    """BERT with a head for questions on a text: a start and an end score for each token."""
    units: dict[str, nn.Module] = {"embeddings": BertEmbeddings()}
    units |= {f"layer{number}": Block(norm_first=False, eps=1e-12) for number in range(layers)}
    units["qa_head"] = nn.Linear(WIDTH, 2)
    answers = torch.randint(tokens, (batch, 2))

    def loss(scores: Tensor) -> Tensor:
        return functional.cross_entropy(scores, answers)

    return Workload(chain(units), (torch.randint(30522, (batch, tokens)),), loss, optimizer="adam")


def bert_base_squad384(batch: int) -> Workload:
    return bert(batch, 384)


def bert_6layer_64(batch: int) -> Workload:
    return bert(batch, 64, layers=6)


def gpt2_small_1024(batch: int) -> Workload:
    """The output layer has the weight of the word embeddings."""
    vocabulary, context = 50257, 1024
    embeddings, output = GptEmbeddings(vocabulary, context), nn.Linear(WIDTH, vocabulary, bias=False)
    output.weight = embeddings.words.weight
    units: dict[str, nn.Module] = {"embeddings": embeddings}
    units |= {f"block{number}": Block(norm_first=True, causal=True, gelu="tanh") for number in range(LAYERS)}
    units["head"] = nn.Sequential(nn.LayerNorm(WIDTH), output)
    following = torch.randint(vocabulary, (batch, context))

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits.flatten(0, 1), following.flatten())

    return Workload(chain(units), (torch.randint(vocabulary, (batch, context)),), loss, optimizer="adam")


def vit_b16_imagenet(batch: int) -> Workload:
    units: dict[str, nn.Module] = {"patches": Patches(224)}
    units |= {f"block{number}": Block(norm_first=True, eps=1e-6) for number in range(LAYERS)}
    units["head"] = nn.Sequential(nn.LayerNorm(WIDTH, 1e-6), FirstToken(), nn.Linear(WIDTH, 1000))
    return Workload(chain(units), images(batch, 224), classification(batch, 1000), optimizer="adam")
