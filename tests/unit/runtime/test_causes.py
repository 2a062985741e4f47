"""Following an error to what it came from."""

from __future__ import annotations

import itertools

from hqueue.net.refusals import RefusedError, refusal_of
from hqueue.runtime.causes import causes
from hqueue.runtime.sockets import lacks_descriptors


def _chain(*errors: BaseException) -> BaseException:
    for error, cause in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[0]


def test_each_error_comes_once_from_the_last_to_the_first() -> None:
    first, second, third = ValueError(), OSError(), RefusedError("no")
    assert [*causes(_chain(first, second, third))] == [first, second, third]
    assert [*causes(None)] == []


def test_errors_that_come_from_one_another_end() -> None:
    first, second = TimeoutError(), ValueError()
    for chain in (_chain(first, first), _chain(first, second, first)):
        assert [*causes(chain)] in ([first], [first, second])
        assert refusal_of(chain) is None
        assert not lacks_descriptors(chain)


def test_what_was_handled_when_an_error_was_raised_counts_if_asked_for() -> None:
    later, earlier = ValueError(), OSError()
    later.__context__ = earlier
    assert [*causes(later)] == [later]
    assert [*causes(later, contexts=True)] == [later, earlier]
