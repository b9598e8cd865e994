"""Classes of one role by their names."""

from typing import Any, Generic, TypeVar

from rfgp.errors import InvalidArgumentError

T = TypeVar("T")


class Registry(Generic[T]):
    """The classes of one role by name; a new one is a line here.

    Args:
        role: What they are, for messages: "coupling".
        classes: The classes by name.
    """

    def __init__(self, role: str, classes: dict[str, type[T]]) -> None:
        self.role = role
        self.classes = dict(classes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that `find` knows."""
        return tuple(self.classes)

    def find(self, name: str) -> type[T]:
        """Return the class of a name.

        Raises:
            InvalidArgumentError: there is none.
        """
        if not isinstance(name, str) or name not in self.classes:
            raise InvalidArgumentError(f"There is no {self.role} {name!r}; known are {', '.join(self.classes)}.")
        return self.classes[name]

    def make(self, name: str, **options: Any) -> T:
        """Return an instance of a name.

        Raises:
            InvalidArgumentError: there is no such name, or it lacks an option.
        """
        kind = self.find(name)
        try:
            return kind(**options)
        except TypeError as error:
            raise InvalidArgumentError(f"{self.role.capitalize()} {name!r}: {error}.") from error

    def name_of(self, thing: T) -> str:
        """Return the name of an instance's class.

        Raises:
            InvalidArgumentError: the class is not registered.
        """
        for name, kind in self.classes.items():
            if type(thing) is kind:
                return name
        raise InvalidArgumentError(f"{thing!r} is not a {self.role} of rfgp; known are {', '.join(self.classes)}.")
