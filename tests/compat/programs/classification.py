"""Training a residual network of bottlenecks as reference scripts do it: many switches, a module of helpers."""

import argparse
import os
import tempfile

import torch
import torch.utils.data
import utils
from common import same_weights, tell
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data.dataloader import default_collate


class Bottleneck(nn.Module):
    expansion: int = 2

    def __init__(self, inplanes, planes, stride=1, downsample=None, norm_layer=None):
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        self.conv1, self.bn1 = nn.Conv2d(inplanes, planes, 1, bias=False), norm_layer(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, groups=2, bias=False)
        self.bn2 = norm_layer(planes)
        self.conv3 = nn.Conv2d(planes, planes * self.expansion, 1, bias=False)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu, self.downsample = nn.ReLU(inplace=True), downsample

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, block, layers, num_classes=10, zero_init_residual=False):
        super().__init__()
        self.inplanes = 8
        self.conv1 = nn.Conv2d(1, self.inplanes, kernel_size=3, padding=1, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(self.inplanes), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 8, layers[0])
        self.layer2 = self._make_layer(block, 16, layers[1], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)
            if zero_init_residual and isinstance(m, Bottleneck) and m.bn3.weight is not None:
                nn.init.constant_(m.bn3.weight, 0)

    def _make_layer(self, block, planes, blocks, stride=1):
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes * block.expansion, 1, stride, bias=False),
                nn.BatchNorm2d(planes * block.expansion),
            )
        layers = [block(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes * block.expansion
        layers += [block(self.inplanes, planes) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(x, 1))


def train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args, model_ema=None, scaler=None):
    model.train()
    metric_logger = utils.MetricLogger(delimiter="  ")
    metric_logger.meters["lr"] = utils.SmoothedValue(window_size=1, fmt="{value:.4f}")
    for i, (image, target) in enumerate(metric_logger.log_every(data_loader, args.print_freq, f"Epoch: [{epoch}]")):
        image, target = image.to(device), target.to(device)
        with torch.amp.autocast(device.type, enabled=scaler is not None):
            output = model(image)
            loss = criterion(output, target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            if args.clip_grad_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
            optimizer.step()
        if model_ema and i % args.model_ema_steps == 0:
            model_ema.update_parameters(model)
            if epoch < args.lr_warmup_epochs:
                model_ema.n_averaged.fill_(0)
        acc1, acc5 = utils.accuracy(output, target, topk=(1, 5))
        metric_logger.update(loss=loss.item(), lr=optimizer.param_groups[0]["lr"])
        metric_logger.meters["acc1"].update(acc1.item(), n=image.shape[0])
        metric_logger.meters["acc5"].update(acc5.item(), n=image.shape[0])
        tell(loss.item())


def evaluate(model, criterion, data_loader, device, log_suffix=""):
    model.eval()
    metric_logger = utils.MetricLogger(delimiter="  ")
    with torch.inference_mode():
        for image, target in metric_logger.log_every(data_loader, 100, f"Test: {log_suffix}"):
            image = image.to(device, non_blocking=True)
            target = target.to(device, non_blocking=True)
            output = model(image)
            acc1, acc5 = utils.accuracy(output, target, topk=(1, 5))
            metric_logger.update(loss=criterion(output, target).item())
            metric_logger.meters["acc1"].update(acc1.item(), n=image.shape[0])
            metric_logger.meters["acc5"].update(acc5.item(), n=image.shape[0])
    metric_logger.meters["acc1"].synchronize_between_processes()
    print(f"Acc@1 {metric_logger.acc1.global_avg:.3f} Acc@5 {metric_logger.acc5.global_avg:.3f}")
    tell(metric_logger.loss.global_avg)


def load_data(args):
    digits = load_digits()
    images = torch.as_tensor(digits.images, dtype=torch.float32).unsqueeze(1).div_(16).sub_(0.3).div_(0.37)
    dataset = torch.utils.data.TensorDataset(images, torch.as_tensor(digits.target))
    train, test = torch.utils.data.Subset(dataset, range(256)), torch.utils.data.Subset(dataset, range(256, 384))
    loader = torch.utils.data.DataLoader(
        train,
        batch_size=args.batch_size,
        sampler=torch.utils.data.SequentialSampler(train),
        num_workers=args.workers,
        pin_memory=True,
        collate_fn=lambda batch: default_collate(batch),
    )
    return loader, torch.utils.data.DataLoader(test, batch_size=args.batch_size, pin_memory=True)


def main(args):
    utils.mkdir(args.output_dir)
    utils.init_distributed_mode(args)
    print(args)
    device = torch.device(args.device if torch.cuda.is_available() else "cpu")
    if args.use_deterministic_algorithms:
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
    else:
        torch.backends.cudnn.benchmark = True
    data_loader, data_loader_test = load_data(args)
    model = ResNet(Bottleneck, [1, 1])
    same_weights(model)
    model.to(device)
    if args.distributed and args.sync_bn:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
    parameters = utils.set_weight_decay(model, args.weight_decay, args.norm_weight_decay)
    optimizer = torch.optim.SGD(parameters, lr=args.lr, momentum=args.momentum, nesterov="nesterov" in args.opt)
    scaler = torch.amp.GradScaler(device.type) if args.amp else None
    main_lr = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs - args.lr_warmup_epochs)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=args.lr_warmup_epochs)
    lr_scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, main_lr], [args.lr_warmup_epochs])
    model_without_ddp = model
    model_ema = utils.ExponentialMovingAverage(model_without_ddp, device=device, decay=0.9)
    path = os.path.join(args.output_dir, "checkpoint.pth")
    for epoch in range(args.start_epoch, args.epochs):
        if epoch == args.resume_at:
            checkpoint = torch.load(path, map_location="cpu", weights_only=False)
            model_without_ddp.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            lr_scheduler.load_state_dict(checkpoint["lr_scheduler"])
            model_ema.load_state_dict(checkpoint["model_ema"])
            assert checkpoint["args"].lr == args.lr and checkpoint["epoch"] == epoch - 1
        train_one_epoch(model, criterion, optimizer, data_loader, device, epoch, args, model_ema, scaler)
        lr_scheduler.step()
        evaluate(model, criterion, data_loader_test, device=device)
        evaluate(model_ema, criterion, data_loader_test, device=device, log_suffix="EMA")
        parts = {
            "model": model_without_ddp,
            "optimizer": optimizer,
            "lr_scheduler": lr_scheduler,
            "model_ema": model_ema,
        }
        checkpoint = {name: part.state_dict() for name, part in parts.items()}
        utils.save_on_master({**checkpoint, "epoch": epoch, "args": args}, path)


def get_args_parser(add_help=True):
    parser = argparse.ArgumentParser(description="PyTorch Classification Training", add_help=add_help)
    parser.add_argument("--device", default="cuda", type=str, help="device (Use cuda or cpu Default: cuda)")
    parser.add_argument("-b", "--batch-size", default=64, type=int)
    parser.add_argument("--epochs", default=3, type=int, metavar="N")
    parser.add_argument("-j", "--workers", default=0, type=int, metavar="N")
    parser.add_argument("--opt", default="sgd_nesterov", type=str)
    parser.add_argument("--lr", default=0.05, type=float)
    parser.add_argument("--momentum", default=0.9, type=float, metavar="M")
    parser.add_argument("--wd", "--weight-decay", default=1e-4, type=float, dest="weight_decay")
    parser.add_argument("--norm-weight-decay", default=0.0, type=float)
    parser.add_argument("--label-smoothing", default=0.1, type=float)
    parser.add_argument("--lr-warmup-epochs", default=1, type=int)
    parser.add_argument("--print-freq", default=2, type=int)
    parser.add_argument("--output-dir", default=os.path.join(tempfile.mkdtemp(), "run"), type=str)
    parser.add_argument("--start-epoch", default=0, type=int, metavar="N")
    parser.add_argument("--resume-at", default=2, type=int)
    parser.add_argument("--sync-bn", dest="sync_bn", action="store_true")
    parser.add_argument("--amp", action="store_true", help="Use torch.amp for mixed precision training")
    parser.add_argument("--model-ema-steps", type=int, default=2)
    parser.add_argument("--use-deterministic-algorithms", action="store_true")
    parser.add_argument("--clip-grad-norm", default=5.0, type=float)
    return parser


if __name__ == "__main__":
    main(get_args_parser().parse_args())
