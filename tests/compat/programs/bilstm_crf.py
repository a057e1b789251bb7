"""Tagging words by a bidirectional LSTM and a conditional random field, decoded by Viterbi."""

import argparse

import torch
from common import noise, same_weights, tell
from torch import nn, optim

TAGS = ["B", "I", "O", "<start>", "<stop>"]
START, STOP = 3, 4


class BiLSTM_CRF(nn.Module):
    def __init__(self, words, dim, hidden):
        super().__init__()
        self.embeds = nn.Embedding(words, dim)
        self.lstm = nn.LSTM(dim, hidden // 2, num_layers=1, bidirectional=True)
        self.hidden2tag = nn.Linear(hidden, len(TAGS))
        self.transitions = nn.Parameter(torch.zeros(len(TAGS), len(TAGS)))

    def forbid(self):
        self.transitions.data[START, :] = -10000
        self.transitions.data[:, STOP] = -10000

    def features(self, sentence):
        out, _ = self.lstm(self.embeds(sentence).unsqueeze(1))
        return self.hidden2tag(out.view(len(sentence), -1))

    def partition(self, feats):
        alpha = torch.full((len(TAGS),), -10000.0, device=feats.device)
        alpha[START] = 0.0
        for feat in feats:
            alpha = torch.logsumexp(alpha.unsqueeze(0) + self.transitions + feat.unsqueeze(1), dim=1)
        return torch.logsumexp(alpha + self.transitions[STOP], dim=0)

    def score(self, feats, tags):
        path = torch.cat([torch.tensor([START], dtype=torch.long, device=tags.device), tags])
        moves = self.transitions[path[1:], path[:-1]].sum()
        return moves + feats.gather(1, tags.unsqueeze(1)).sum() + self.transitions[STOP, path[-1]]

    def neg_log_likelihood(self, sentence, tags):
        feats = self.features(sentence)
        return self.partition(feats) - self.score(feats, tags)

    def forward(self, sentence):
        best, pointers = torch.full((len(TAGS),), -10000.0, device=sentence.device), []
        best[START] = 0.0
        for feat in self.features(sentence):
            scores, ids = (best.unsqueeze(0) + self.transitions).max(dim=1)
            best = scores + feat
            pointers.append(ids)
        score, tag = (best + self.transitions[STOP]).max(dim=0)
        path = [tag.item()]
        for ids in reversed(pointers):
            path.append(ids[path[-1]].item())
        return score, path[-2::-1]


parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true", default=False, help="disables training on CUDA")
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
torch.manual_seed(1)
if args.cuda:
    torch.cuda.manual_seed(1)
device = torch.device("cuda" if args.cuda else "cpu")
data = []
for _ in range(4):
    words = torch.from_numpy(noise.randint(0, 12, 7))
    tags = torch.where(words < 4, 0, torch.where(words < 8, 1, 2))
    data.append((words.to(device), tags.to(device)))
model = BiLSTM_CRF(12, 6, 8)
same_weights(model)
model.forbid()
model.to(device)
optimizer = optim.SGD(model.parameters(), lr=0.05, weight_decay=1e-4)
for _ in range(4):
    for sentence, tags in data:
        model.zero_grad()
        loss = model.neg_log_likelihood(sentence, tags)
        loss.backward()
        optimizer.step()
        tell(loss)
with torch.no_grad():
    for sentence, tags in data:
        score, path = model(sentence)
        tell(score)
        tell(sum(int(p == t) for p, t in zip(path, tags.tolist())))
