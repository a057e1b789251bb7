"""Where a small convolutional network looks: hooks for activations and gradients, heat maps from both."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import randn, same_weights, tell


class GradCAM:
    def __init__(self, model, layer):
        self.model, self.activations, self.gradients = model, None, None
        self.handles = [
            layer.register_forward_hook(self.save_activations),
            layer.register_full_backward_hook(self.save_gradients),
        ]

    def save_activations(self, module, inputs, output):
        self.activations = output.detach()

    def save_gradients(self, module, grad_input, grad_output):
        self.gradients = grad_output[0].detach()

    def __call__(self, x, index=None):
        self.model.eval()
        logits = self.model(x)
        index = logits.argmax(dim=1) if index is None else index
        self.model.zero_grad()
        logits.gather(1, index[:, None]).sum().backward()
        weights = self.gradients.mean(dim=(2, 3), keepdim=True)
        cam = F.relu((weights * self.activations).sum(dim=1, keepdim=True))
        cam = F.interpolate(cam, size=x.shape[2:], mode="bilinear", align_corners=False)
        low, high = cam.amin((2, 3), keepdim=True), cam.amax((2, 3), keepdim=True)
        return (cam - low) / (high - low + 1e-8)

    def remove(self):
        for handle in self.handles:
            handle.remove()


model = nn.Sequential()
model.add_module("conv1", nn.Conv2d(3, 8, 3, padding=1))
model.add_module("bn1", nn.BatchNorm2d(8))
model.add_module("relu1", nn.ReLU())
model.add_module("conv2", nn.Conv2d(8, 8, 3, stride=2, padding=1))
model.add_module("relu2", nn.ReLU())
model.add_module("pool", nn.AdaptiveAvgPool2d(1))
model.add_module("flat", nn.Flatten())
model.add_module("head", nn.Linear(8, 4))
same_weights(model)
model.to("cuda" if torch.cuda.is_available() else "cpu")
device = next(model.parameters()).device
x = randn(8, 3, 16, 16).to(device=device)
y = (x.mean((1, 2, 3)) > 0).long() + 2 * (x[:, 0].mean((1, 2)) > 0).long()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
norms = []
for name, p in model.named_parameters():
    if name.endswith("weight"):
        p.register_hook(lambda grad: norms.append(grad.norm().item()))
for _ in range(8):
    model.train()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tell(loss)
tell(sum(norms) / len(norms))
cam = GradCAM(model, dict(model.named_modules())["conv2"])
heat = cam(x)
tell(heat.mean())
tell(heat.std())
cam.remove()
assert not model.conv2._forward_hooks
