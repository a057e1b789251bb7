"""A language model of transformer encoder layers with a causal mask."""

import math

import torch
import torch.nn as nn
from common import same_weights, tell


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=64):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(0)]


class TransformerModel(nn.Module):
    def __init__(self, ntoken, d_model=32, nhead=4, d_hid=64, nlayers=2):
        super().__init__()
        self.embedding = nn.Embedding(ntoken, d_model)
        self.pos_encoder = PositionalEncoding(d_model)
        layers = nn.TransformerEncoderLayer(d_model, nhead, d_hid, dropout=0.0)
        self.transformer_encoder = nn.TransformerEncoder(layers, nlayers)
        self.d_model = d_model
        self.linear = nn.Linear(d_model, ntoken)

    def forward(self, src, src_mask=None):
        src = self.pos_encoder(self.embedding(src) * math.sqrt(self.d_model))
        return self.linear(self.transformer_encoder(src, src_mask))


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
text = "she sells sea shells by the sea shore; " * 30
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text]).view(-1, 10).contiguous().to(device)
model = TransformerModel(len(chars)).to(device)
same_weights(model)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
mask = nn.Transformer.generate_square_subsequent_mask(20).to(device)
model.train()
for i in range(0, data.size(0) - 21, 20):
    source, target = data[i : i + 20], data[i + 1 : i + 21]
    loss = criterion(model(source, mask).view(-1, len(chars)), target.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    tell(loss)
