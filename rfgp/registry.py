"""Classes of one role by their names."""

from typing import Any, Generic, TypeVar

from rfgp.errors import InvalidArgumentError

T = TypeVar("T")


class Registry(Generic[T]):
    """The classes of one role by name.

    Args:
        role: The word for a class in messages, such as "coupling".
        classes: The classes by name.

    Examples:
        >>> registry = Registry("number", {"whole": int, "real": float})
        >>> registry.names, registry.make("whole")
        (('whole', 'real'), 0)
    """

    def __init__(self, role: str, classes: dict[str, type[T]]) -> None:
        self.role = role
        self.classes = dict(classes)

    def add(self, name: str, kind: type[T]) -> None:
        """Add a class, which files of models then may name.

        Args:
            name: The name of the class.
            kind: The class.

        Raises:
            InvalidArgumentError: If the name belongs to another class.
        """
        if self.classes.setdefault(name, kind) is not kind:
            raise InvalidArgumentError(f"A {self.role} must have a new name, got {name!r}. Choose another one.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(self.classes)

    def find(self, name: str) -> type[T]:
        """Return the class with a name.

        Args:
            name: The name.

        Raises:
            InvalidArgumentError: If the name is unknown.
        """
        if not isinstance(name, str) or name not in self.classes:
            raise InvalidArgumentError(f"The {self.role} must be one of {', '.join(self.classes)}, got {name!r}.")
        return self.classes[name]

    def make(self, name: str, /, **options: Any) -> T:
        """Return an instance of the class with a name.

        Args:
            name: The name.
            **options: The arguments of the class.

        Raises:
            InvalidArgumentError: If the name is unknown, or the class lacks an option.
        """
        kind = self.find(name)
        try:
            return kind(**options)
        except TypeError as error:
            raise InvalidArgumentError(f"{self.role.capitalize()} {name!r}: {error}.") from error

    def name_of(self, thing: T) -> str:
        """Return the name of an instance's class.

        Args:
            thing: The instance.

        Raises:
            InvalidArgumentError: If the class is not registered.
        """
        for name, kind in self.classes.items():
            if type(thing) is kind:
                return name
        raise InvalidArgumentError(f"The {self.role} must be one of {', '.join(self.classes)}, got {thing!r}.")
