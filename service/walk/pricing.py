"""Before the charge: what a question costs, or who has paid for it already. Reads no data; failing is free."""

from dataclasses import dataclass, replace

from service.catalog.store import Catalog
from service.core.amounts import Terms
from service.core.request import Ask, Principal
from service.core.schema import Schema
from service.ledger.book import Ledger
from service.released.store import Answers
from service.walk.planner import Planner, PlanningJob
from service.walk.promised_time import PromisedTime
from service.walk.question import Question
from service.walk.rehearsal import Rehearsal
from service.walk.reuse import Replayed, lessened, on_frames, replay


@dataclass(frozen=True, slots=True)
class Pricing:
    """Declarations, terms and stored releases: all that a price may depend on."""

    catalog: Catalog
    ledger: Ledger
    answers: Answers
    rehearsal: Rehearsal
    planner: Planner
    time: PromisedTime

    def question(self, ask: Ask, principal: Principal) -> Question:
        """At its full price, whatever is stored; refused if its outer SQL could not run whatever is released."""
        schema = self.catalog.schema(ask.dataset, principal)
        balance = self.ledger.balance(ask.dataset)
        question = self._planned(ask, schema, balance.terms, principal)
        promise = self.time.promise(question.priced.plans, schema.sizes, balance.safety)
        self.rehearsal.check(question.query, schema, principal.person)
        return replace(question, promise=promise)

    def _planned(self, ask: Ask, schema: Schema, terms: Terms, principal: Principal) -> Question:
        """Planned with the bounds that fit; again with those that an earlier charge has kept, where they differ: also
        where nothing fits any more."""
        question = self.planner.plan(PlanningJob(ask, schema, terms), principal.person)
        bases = [basis for each in question.chosen if each is not None for basis in each.bases]
        known = self.catalog.kept_bounds.of(ask.dataset, bases)
        chosen = tuple(each and each.as_kept(known) for each in question.chosen)
        if [each and each.bounds for each in chosen] != [each and each.bounds for each in question.chosen]:
            return self.planner.plan(PlanningJob(ask, schema, terms, known), principal.person)
        return replace(question, chosen=chosen)

    def cheapest(self, ask: Ask, principal: Principal) -> tuple[Question, Replayed | None]:
        """The question, and stored releases that answer it for nothing; else at the price of what they lack."""
        question = self.question(ask, principal)
        if ask.fresh:
            return question, None
        stored = on_frames(self.answers, question)
        found = replay(question, stored)
        return (question, found) if found is not None else (lessened(question, stored), None)
