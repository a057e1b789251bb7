# Lies in packages as it is: what stands for everything in modules that were left out.
class MockedObject:
    def __new__(cls, *args: object, **kwargs: object) -> "MockedObject":
        if not kwargs.get("_suppress_err"):
            name = getattr(cls, "_name", cls.__name__)
            raise NotImplementedError(
                f"Object '{name}' was mocked out during packaging but it is being used in '__new__'. If this error is "
                "happening during 'load_pickle', please ensure that your pickled object doesn't contain any mocked "
                "objects."
            )
        return super().__new__(cls)

    def __init__(self, name: str, _suppress_err: bool) -> None:
        self._name: str
        self.__dict__["_name"] = name

    def __repr__(self) -> str:
        return f"MockedObject({self._name})"


def _refuse(method: str) -> None:
    def refused(self: MockedObject, *args: object, **kwargs: object) -> None:
        raise NotImplementedError(
            f"Object '{self._name}' was mocked out during packaging but it is being used in {method}"
        )

    setattr(MockedObject, method, refused)


_WORDS = (
    "call getattr setattr delattr getitem setitem delitem contains iter reversed len length_hint bool hash eq ne lt le "
    "gt ge add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor radd rsub rmul rmatmul rtruediv "
    "rfloordiv rmod rdivmod rpow rlshift rrshift rand ror rxor iadd isub imul imatmul itruediv ifloordiv imod ipow "
    "ilshift irshift iand ior ixor neg pos abs invert int float complex index round trunc floor ceil enter exit bytes "
    "dir sizeof copy deepcopy reduce getstate instancecheck subclasscheck"
)
for _word in _WORDS.split():
    _refuse(f"__{_word}__")
