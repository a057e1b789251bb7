"""News headlines in classes: bags of word embeddings, a collate function with offsets, TensorBoard, a best model kept."""

import tempfile
from collections import Counter
from functools import partial

import torch
from common import same_weights, tell
from torch import nn
from torch.utils.data import DataLoader, random_split
from torch.utils.data.dataset import Dataset

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    SummaryWriter = None

device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
LINES = """sports|the team won the final match in the last minute
sports|a late goal gave the club its third win
money|shares fell as the bank raised its rates
money|the market closed higher after strong earnings
science|a new telescope sees the oldest stars
science|researchers find water below the surface of the moon
sports|the coach leaves the club after ten years
money|oil prices rise while the dollar falls
science|a vaccine shows strong results in a first trial
sports|she breaks the record in the final race
money|the bank buys its rival for ten billion
science|stars of the oldest kind hold little iron""".splitlines()


class Headlines(Dataset):
    def __init__(self, lines):
        self.rows = [line.split("|") for line in lines]

    def __getitem__(self, index):
        return self.rows[index]

    def __len__(self):
        return len(self.rows)


def collate(batch, vocabulary, classes):
    labels, texts, offsets = [], [], [0]
    for label, text in batch:
        ids = torch.tensor([vocabulary.get(word, 0) for word in text.split()], dtype=torch.int64)
        labels.append(classes.index(label))
        texts.append(ids)
        offsets.append(ids.size(0))
    offsets = torch.tensor(offsets[:-1]).cumsum(dim=0)
    return torch.tensor(labels).to(device), torch.cat(texts).to(device), offsets.to(device)


class TextClassifier(nn.Module):
    def __init__(self, words, dim, classes):
        super().__init__()
        self.embedding = nn.EmbeddingBag(words, dim, sparse=False)
        self.fc = nn.Linear(dim, classes)

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


data = Headlines(LINES)
counts = Counter(word for _, text in data for word in text.split())
vocabulary = {word: k + 1 for k, (word, _) in enumerate(sorted(counts.items()))}
classes = sorted({label for label, _ in data})
train, valid = random_split(data, [9, 3], generator=torch.Generator().manual_seed(0))
train.indices, valid.indices = list(range(9)), list(range(9, 12))  # the same split wherever it runs
loader = partial(DataLoader, batch_size=3, collate_fn=partial(collate, vocabulary=vocabulary, classes=classes))
model = TextClassifier(len(vocabulary) + 1, 8, len(classes)).to(device)
same_weights(model)
criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.5)
best = None
with tempfile.TemporaryDirectory() as folder:
    writer = SummaryWriter(folder) if SummaryWriter else None
    for epoch in range(4):
        model.train()
        for step, (label, text, offsets) in enumerate(loader(train)):
            optimizer.zero_grad()
            loss = criterion(model(text, offsets), label)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            if writer:
                writer.add_scalar("loss/train", loss.item(), epoch * 3 + step)
            tell(loss)
        model.eval()
        with torch.no_grad():
            total = sum(criterion(model(t, o), y).item() * len(y) for y, t, o in loader(valid)) / len(valid)
        tell(total)
        if writer:
            writer.add_histogram("embedding", model.embedding.weight, epoch)
        if best is not None and total > best:
            scheduler.step()
        else:
            best = total
            torch.save(model, f"{folder}/best.pt")
    if writer:
        writer.add_hparams({"lr": 2.0}, {"best": best})
        writer.close()
    kept = torch.load(f"{folder}/best.pt", weights_only=False)
label, text, offsets = next(iter(loader(valid)))
tell(criterion(kept(text, offsets), label))
