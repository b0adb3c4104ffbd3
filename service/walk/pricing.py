"""Before the charge: what a question costs, or who has paid for it already. Reads no data; failing is free."""

from dataclasses import dataclass

from service.catalog.store import Catalog
from service.core.request import Ask, Principal
from service.ledger.book import Ledger
from service.released.store import Answers
from service.walk.question import Question, put_question
from service.walk.rehearsal import Rehearsal
from service.walk.reuse import Replayed, lessened, on_frames, replay


@dataclass(frozen=True, slots=True)
class Pricing:
    """Declarations, terms and stored releases: all that a price may depend on."""

    catalog: Catalog
    ledger: Ledger
    answers: Answers
    rehearsal: Rehearsal

    def question(self, ask: Ask, principal: Principal) -> Question:
        """At its full price, whatever is stored; refused if its outer SQL could not run whatever is released."""
        schema = self.catalog.schema(ask.dataset, principal)
        question = put_question(ask, schema, self.ledger.terms(ask.dataset))
        self.rehearsal.check(question.query, schema)
        return question

    def cheapest(self, ask: Ask, principal: Principal) -> tuple[Question, Replayed | None]:
        """The question, and stored releases that answer it for nothing; else at the price of what they lack."""
        question = self.question(ask, principal)
        if ask.fresh:
            return question, None
        stored = on_frames(self.answers, question)
        found = replay(question, stored)
        return (question, found) if found is not None else (lessened(question, stored), None)
