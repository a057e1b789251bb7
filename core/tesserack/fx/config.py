"""Switches of PyTorch's graphs, which change nothing."""

disable_progress = True
verbose_progress = False
validate_shape_inference = False
do_not_emit_stack_traces = False
