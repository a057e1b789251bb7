"""A language model of characters: an LSTM with truncated backpropagation."""

import argparse

import torch
import torch.nn as nn
from common import same_weights, tell

parser = argparse.ArgumentParser()
parser.add_argument("--no-accel", action="store_true", help="disables the accelerator")
args = parser.parse_args()
use_accel = not args.no_accel and torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")

text = "the quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs. " * 20
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp=24, nhid=48, nlayers=2):
        super().__init__()
        self.drop = nn.Dropout(0.0)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid, self.nlayers = nhid, nlayers

    def forward(self, input, hidden):
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        return self.decoder(self.drop(output)).view(-1, len(chars)), hidden

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))


def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous().to(device)


def repackage_hidden(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage_hidden(v) for v in h)


train_data = batchify(data, 8)
model = RNNModel(len(chars)).to(device)
same_weights(model)
criterion = nn.CrossEntropyLoss()
hidden, bptt = model.init_hidden(8), 16
for i in range(0, train_data.size(0) - 1, bptt):
    seq_len = min(bptt, len(train_data) - 1 - i)
    source, target = train_data[i : i + seq_len], train_data[i + 1 : i + 1 + seq_len].view(-1)
    model.zero_grad()
    hidden = repackage_hidden(hidden)
    output, hidden = model(source, hidden)
    loss = criterion(output, target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-1.0)
    tell(loss)
