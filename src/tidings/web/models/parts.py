"""The base of answer models: turns a pipeline's value into JSON in camelCase."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import (
    AliasGenerator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    PlainSerializer,
    SkipValidation,
    WrapSerializer,
)
from pydantic.alias_generators import to_camel

from tidings.core.clock import to_text

Timestamp = Annotated[datetime, PlainSerializer(to_text)]


class AnswerPart(BaseModel):
    """A part of an answer, in camelCase. `model_validate` takes a value with these attributes."""

    model_config = ConfigDict(alias_generator=AliasGenerator(serialization_alias=to_camel), from_attributes=True)

    @classmethod
    def describe(cls, **values: Any) -> Self:
        """The answer built from these values, which have the attributes of its parts."""
        return cls.model_validate(values)

    def to_json(self) -> dict[str, Any]:
        """The same JSON for a command."""
        return self.model_dump(mode="json", by_alias=True)


@dataclass(frozen=True)
class Described:
    """Describes JSON by a type, but sends it unchanged: a pipeline made it, or an older release stored it."""

    shape: Any

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> Any:
        # Return the value unchanged, because pydantic would drop fields that the type does not know.
        return handler.generate_schema(Annotated[self.shape, WrapSerializer(lambda value, _: value), SkipValidation])
