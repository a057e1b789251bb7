"""Reversing sequences: an encoder and a decoder of GRUs with attention and padded batches."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import noise, same_weights, tell
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Encoder(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden, padding_idx=0)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embedding(x), lengths, batch_first=True, enforce_sorted=False)
        out, h = self.gru(packed)
        return pad_packed_sequence(out, batch_first=True)[0], h


class AttnDecoder(nn.Module):
    def __init__(self, hidden, vocab):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.Wa, self.Ua, self.Va = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, keys, h, target, mask):
        outputs = []
        token = torch.empty(target.size(0), 1, dtype=torch.long, device=device).fill_(1)
        for t in range(target.size(1)):
            query = h.permute(1, 0, 2)
            scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2).unsqueeze(1)
            scores = scores.masked_fill(mask.unsqueeze(1), float("-inf"))
            context = torch.bmm(F.softmax(scores, dim=-1), keys)
            out, h = self.gru(torch.cat((self.embedding(token), context), dim=2), h)
            outputs.append(self.out(out))
            token = target[:, t : t + 1]
        return F.log_softmax(torch.cat(outputs, dim=1), dim=-1)


encoder, decoder = Encoder(12, 24).to(device), AttnDecoder(24, 12).to(device)
same_weights(encoder, decoder)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=5e-3)
criterion = nn.NLLLoss(ignore_index=0)
for step in range(15):
    sequences = [torch.from_numpy(noise.randint(2, 12, size=noise.randint(3, 8))) for _ in range(16)]
    lengths = torch.tensor([len(s) for s in sequences])
    source = pad_sequence(sequences, batch_first=True).to(device)
    target = pad_sequence([s.flip(0) for s in sequences], batch_first=True).to(device)
    keys, h = encoder(source, lengths)
    log_probs = decoder(keys, h, target, source == 0)
    loss = criterion(log_probs.view(-1, 12), target.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tell(loss)
