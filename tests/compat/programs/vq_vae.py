"""VQ-VAE with EMA codebook, straight-through estimator."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import randn, same_weights, tell

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_device(device)


def normal(*shape):
    return randn(*shape).to(device)


class VectorQuantizerEMA(nn.Module):
    def __init__(self, n=16, d=8, beta=0.25, decay=0.9, eps=1e-5):
        super().__init__()
        self.n, self.d, self.beta, self.decay, self.eps = n, d, beta, decay, eps
        emb = normal(n, d)
        self.register_buffer("embedding", emb)
        self.register_buffer("cluster_size", torch.zeros(n))
        self.register_buffer("ema_w", emb.clone(), persistent=False)

    def forward(self, z):
        z = z.permute(0, 2, 3, 1).contiguous()
        flat = z.view(-1, self.d)
        dist = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.embedding.t() + self.embedding.pow(2).sum(1)
        idx = torch.argmin(dist, dim=1)
        onehot = F.one_hot(idx, self.n).type_as(flat)
        q = F.embedding(idx, self.embedding).view_as(z)
        if self.training:
            with torch.no_grad():
                self.cluster_size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
                self.ema_w.mul_(self.decay).add_(onehot.t() @ flat, alpha=1 - self.decay)
                n = self.cluster_size.sum()
                cs = (self.cluster_size + self.eps) / (n + self.n * self.eps) * n
                self.embedding.copy_(self.ema_w / cs.unsqueeze(1))
        commit = self.beta * F.mse_loss(q.detach(), z)
        q = z + (q - z).detach()
        p = onehot.mean(0)
        perp = torch.exp(-torch.sum(p * torch.log(p + 1e-10)))
        return q.permute(0, 3, 1, 2).contiguous(), commit, perp, idx


class Res(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.block = nn.Sequential(
            nn.ReLU(True),
            nn.Conv2d(c, c, 3, padding=1, bias=False),
            nn.BatchNorm2d(c),
            nn.ReLU(inplace=True),
            nn.Conv2d(c, c, 1),
        )

    def forward(self, x):
        return x + self.block(x)


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1), nn.GroupNorm(4, 16), Res(16), nn.Conv2d(16, 8, 3, padding="same")
        )
        self.vq = VectorQuantizerEMA()
        self.dec = nn.Sequential(
            nn.Conv2d(8, 16, 3, 1, 1),
            Res(16),
            nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(8, 1, 1),
        )

    def forward(self, x):
        q, c, p, idx = self.vq(self.enc(x))
        return self.dec(q), c, p, idx


model = VQVAE()
same_weights(model)
with torch.no_grad():
    model.vq.embedding.copy_(model.vq.ema_w)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2, amsgrad=True)
sch = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=5e-3, total_steps=20)
x = torch.sigmoid(normal(24, 1, 8, 8))
ema = torch.optim.swa_utils.AveragedModel(
    model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
)
for epoch in range(3):
    for xb in x.split(6):
        r, c, p, idx = model(xb)
        loss = F.smooth_l1_loss(r, xb, beta=0.5) + c
        opt.zero_grad()
        loss.backward()
        n = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sch.step()
        ema.update_parameters(model)
        tell(loss)
    tell(p)
    tell(n)
model.eval()
ema.eval()
with torch.inference_mode():
    tell(F.mse_loss(ema(x)[0], x))
    tell(F.mse_loss(model(x)[0], x))
print(sorted(model.state_dict().keys())[:5], torch.bincount(idx, minlength=16).tolist())
print(model.vq)
