"""Connectionist temporal classification of synthetic utterances."""

import torch
from common import noise, randn, same_weights, tell
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(6, 12, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(24, 5)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True)
        return self.fc(out).log_softmax(-1)


use_cuda = torch.cuda.is_available()
net = Net()
same_weights(net)
if use_cuda:
    net = net.cuda()
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-2)
ctc = nn.CTCLoss(blank=0, zero_infinity=True)
lengths = torch.tensor([14, 9, 12, 11])
targets = torch.from_numpy(noise.randint(1, 5, (4, 4)))
x = randn(4, 14, 6)
if use_cuda:
    x, targets = x.cuda(non_blocking=True), targets.cuda(non_blocking=True)
for _ in range(6):
    optimizer.zero_grad()
    loss = ctc(net(x, lengths).transpose(0, 1), targets, lengths, torch.tensor([4, 3, 4, 2]))
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    tell(loss)
