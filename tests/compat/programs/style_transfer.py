"""Style transfer with L-BFGS: content and Gram matrices of fixed features, kept by hooks."""

import torch
import torch.nn.functional as F
from common import randn, same_weights, tell
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_device(device)

features = nn.Sequential(
    nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU()
)
same_weights(features)
for p in features.parameters():
    p.requires_grad_(False)
kept = {}
for index in (0, 3):
    features[index].register_forward_hook(lambda module, args, out, index=index: kept.__setitem__(index, out))


def gram(t):
    n, c, h, w = t.shape
    flat = t.view(n * c, h * w)
    return flat @ flat.t() / t.numel()


content = randn(1, 3, 12, 12).to(device, torch.float).sigmoid()
style = randn(1, 3, 12, 12).to(device, torch.float).sigmoid()
features(content)
wanted = kept[3].detach()
features(style)
styles = {k: gram(v).detach() for k, v in kept.items()}
image = content.clone().requires_grad_(True)
optimizer = torch.optim.LBFGS([image], max_iter=4)
for _ in range(4):

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        features(image)
        loss = F.mse_loss(kept[3], wanted) + 10 * sum(F.mse_loss(gram(kept[k]), styles[k]) for k in styles)
        loss.backward()
        return loss

    tell(optimizer.step(closure))
