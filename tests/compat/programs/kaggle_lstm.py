"""A competition's notebook as a script: folds, scaled features, categories embedded, an LSTM over windows, old amp forms."""

import gc
import os
import random
import tempfile
import time
import warnings

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from common import same_weights, tell
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import KFold
from sklearn.preprocessing import RobustScaler
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")


class CFG:
    debug = False
    apex = False
    seed = 2021
    n_fold, trn_fold = 4, [0, 1]
    epochs, batch_size, num_workers = 2, 32, 0
    lr, min_lr, weight_decay, max_grad_norm = 1e-2, 1e-4, 1e-6, 1000
    hidden_size, window = 16, 10
    OUTPUT_DIR = tempfile.mkdtemp()


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seed_torch(seed=42):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.backends.cudnn.deterministic = True


class AverageMeter(object):
    """Computes and stores the average and current value"""

    def __init__(self):
        self.reset()

    def reset(self):
        self.val, self.avg, self.sum, self.count = 0, 0, 0, 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


class TrainDataset(Dataset):
    def __init__(self, series, shop, target):
        self.series, self.shop, self.target = series, shop, target

    def __len__(self):
        return len(self.target)

    def __getitem__(self, idx):
        return {
            "cont": torch.FloatTensor(self.series[idx]),
            "cate": torch.LongTensor([self.shop[idx]]),
            "label": torch.tensor(self.target[idx]).float(),
        }


class CustomModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cate_emb = nn.Embedding(5, 4, padding_idx=0)
        self.cate_proj = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
        self.cont_emb = nn.Sequential(nn.Linear(2, 8), nn.LayerNorm(8))
        self.lstm = nn.LSTM(16, cfg.hidden_size, num_layers=2, dropout=0.0, batch_first=True, bidirectional=True)
        self.attention = nn.Sequential(nn.Linear(2 * cfg.hidden_size, 8), nn.Tanh(), nn.Linear(8, 1), nn.Softmax(dim=1))
        self.last = nn.Sequential(nn.Linear(4 * cfg.hidden_size, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 1))
        for n, m in self.named_modules():
            if isinstance(m, nn.LSTM):
                for name, param in m.named_parameters():
                    if "weight_ih" in name:
                        nn.init.xavier_normal_(param.data)
                    elif "weight_hh" in name:
                        nn.init.orthogonal_(param.data)
                    elif "bias" in name:
                        param.data.fill_(0)

    def forward(self, cont_x, cate_x):
        b, t = cont_x.size(0), cont_x.size(1)
        cate = self.cate_proj(self.cate_emb(cate_x)).expand(b, t, -1)
        x, _ = self.lstm(torch.cat((cate, self.cont_emb(cont_x)), 2))
        pooled = torch.sum(self.attention(x) * x, dim=1)
        top, _ = torch.max(x, 1)
        return self.last(torch.cat((pooled, top), 1)).view(-1)


class RMSELoss(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.mse, self.eps = nn.MSELoss(), eps

    def forward(self, yhat, y):
        return torch.sqrt(self.mse(yhat, y) + self.eps)


class EarlyStopping:
    def __init__(self, patience, path):
        self.patience, self.path, self.best, self.counter = patience, path, np.inf, 0

    def __call__(self, score, model, preds):
        if score < self.best:
            self.best, self.counter = score, 0
            torch.save({"model": model.state_dict(), "preds": preds}, self.path)
        else:
            self.counter += 1
        return self.counter >= self.patience


def train_fn(train_loader, model, criterion, optimizer, scheduler):
    if CFG.apex:
        scaler = torch.cuda.amp.GradScaler()
    losses, start = AverageMeter(), time.time()
    model.train()
    for step, batch in enumerate(train_loader):
        cont_x, cate_x, y = (v.to(device, non_blocking=True) for v in batch.values())
        with torch.cuda.amp.autocast(enabled=CFG.apex):
            loss = criterion(model(cont_x, cate_x), y)
        losses.update(loss.item(), y.size(0))
        if CFG.apex:
            scaler.scale(loss).backward()
        else:
            loss.backward()
        grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CFG.max_grad_norm)
        if CFG.apex:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        for param in model.parameters():
            param.grad = None
        scheduler.step(step / len(train_loader))
        if step % 2 == 0:
            print(f"[{step}/{len(train_loader)}] {losses.avg:.4f} grad {grad_norm:.3f} {time.time() - start:.0f}s")
            tell(losses.val)
    return losses.avg


def valid_fn(valid_loader, model, criterion):
    losses, preds = AverageMeter(), []
    model.eval()
    for batch in valid_loader:
        cont_x, cate_x, y = (v.to(device) for v in batch.values())
        with torch.no_grad():
            y_preds = model(cont_x, cate_x)
        losses.update(criterion(y_preds, y).item(), y.size(0))
        preds.append(y_preds.to("cpu").numpy())
    return losses.avg, np.concatenate(preds)


def train_loop(folds, fold, series, shop, target):
    trn_idx, val_idx = folds[fold]
    make = lambda idx, **kw: DataLoader(  # noqa: E731
        TrainDataset(series[idx], shop[idx], target[idx]), batch_size=CFG.batch_size, pin_memory=True, **kw
    )
    train_loader, valid_loader = make(trn_idx, drop_last=True), make(val_idx, num_workers=CFG.num_workers)
    model = CustomModel(CFG)
    same_weights(model)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=CFG.weight_decay)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=2, T_mult=1, eta_min=CFG.min_lr, last_epoch=-1)
    stop = EarlyStopping(patience=1, path=f"{CFG.OUTPUT_DIR}/fold{fold}_best.pth")
    for epoch in range(CFG.epochs):
        avg_loss = train_fn(train_loader, model, RMSELoss(), optimizer, scheduler)
        avg_val_loss, preds = valid_fn(valid_loader, model, RMSELoss())
        score = mean_absolute_error(target[val_idx], preds)
        print(f"Epoch {epoch + 1} - avg_train_loss: {avg_loss:.4f}  avg_val_loss: {avg_val_loss:.4f} mae {score:.4f}")
        tell(avg_val_loss)
        if stop(score, model, preds):
            break
    preds = torch.load(f"{CFG.OUTPUT_DIR}/fold{fold}_best.pth", map_location=torch.device("cpu"), weights_only=False)[
        "preds"
    ]
    del model, optimizer, scheduler
    gc.collect()
    torch.cuda.empty_cache()
    return preds


seed_torch(seed=CFG.seed)
state = np.random.RandomState(7)
days = np.arange(400)
sales = 10 + 3 * np.sin(days * 2 * np.pi / 7) + 0.01 * days + state.randn(400) * 0.3
raw = np.stack([sales, days % 7], axis=1)
scaled = RobustScaler().fit_transform(raw)
series = np.stack([scaled[i : i + CFG.window] for i in range(400 - CFG.window)])
target = scaled[CFG.window :, 0]
shop = (np.arange(len(target)) % 4) + 1
folds = list(KFold(n_splits=CFG.n_fold, shuffle=True, random_state=CFG.seed).split(target))
oof = np.zeros(len(target))
for fold in range(CFG.n_fold):
    if fold in CFG.trn_fold:
        oof[folds[fold][1]] = train_loop(folds, fold, series, shop, target)
tell(F.l1_loss(torch.tensor(oof), torch.tensor(target)))
