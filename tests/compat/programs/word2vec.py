"""Skip-gram embeddings with negative sampling, and an EmbeddingBag beside."""

import torch
import torch.nn.functional as F
from common import noise, same_weights, tell
from torch import nn

text = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "while",
    "the",
    "small",
    "cat",
    "sleeps",
    "under",
    "the",
    "old",
    "tree",
]
vocabulary = {word: k for k, word in enumerate(sorted(set(text)))}
ids = [vocabulary[word] for word in text]
pairs = [(ids[k], ids[j]) for k in range(len(ids)) for j in (k - 2, k - 1, k + 1, k + 2) if 0 <= j < len(ids)]
pairs = torch.LongTensor(pairs)
use_cuda = torch.cuda.is_available()


class SkipGram(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.inner, self.outer = nn.Embedding(n, d), nn.Embedding(n, d)
        self.bag = nn.EmbeddingBag(n, d, mode="mean")

    def forward(self, words, contexts, negatives):
        v = self.inner(words) + 0.1 * self.bag(contexts.unsqueeze(1))
        good = F.logsigmoid((v * self.outer(contexts)).sum(-1))
        bad = F.logsigmoid(-torch.bmm(self.outer(negatives), v.unsqueeze(-1)).squeeze(-1)).sum(-1)
        return -(good + bad).mean()


model = SkipGram(len(vocabulary), 8)
same_weights(model)
if use_cuda:
    model.cuda()
    pairs = pairs.cuda()
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
for _ in range(8):
    negatives = torch.from_numpy(noise.randint(0, len(vocabulary), (len(pairs), 4)))
    negatives = negatives.cuda() if use_cuda else negatives
    loss = model(pairs[:, 0], pairs[:, 1], negatives)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tell(loss)
