"""Calls as PyTorch's dispatcher shows them to ``__torch_dispatch__``: ATen's operators, below autograd.

A call of a tensor whose class defines ``__torch_dispatch__``, and every call within a ``TorchDispatchMode``, comes to
the dispatch key ``Python``, whose kernel is in ``modes.py``. It is shown as the operator of ATen that PyTorch would
show (``names.py``), under that one's name and with its arguments (``renamed.py``); what is one operator here and
several there is made of those (``parts.py``); operators of ATen that there are none of here are functions of others
(``functions.py``).
"""
