"""Is it faithful? How the probability falls while the top tokens go: each method against chance and against erasure."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from tokenlight.explain.inquiry import Request
from tokenlight.explain.jobs import MethodConfig
from tokenlight.foundation.progress import at_each_pass
from tokenlight.methods import METHODS
from tokenlight.metrics.curves import aopc, log_odds
from tokenlight.metrics.evaluate import Curve, draw_curves
from tokenlight.metrics.perturbation import Perturbation
from tokenlight.metrics.probability import Asking, check_probabilities
from tokenlight.results.explanation import Explanation
from tokenlight.serve.checks import Refused
from tokenlight.serve.events import CurveDrawn, Failed
from tokenlight.serve.explaining import Counter, explain_methods, explain_request
from tokenlight.serve.questions import CurvesRequest
from tokenlight.serve.removing import perturbation_of
from tokenlight.serve.session import Session, place
from tokenlight.serve.waiting_line import Say

CHANCE, BEST = "random", "erasure"  # always drawn beside the others
DRAWS = 5  # random orders, whose mean is the curve of chance


def curve_names(asked: CurvesRequest) -> tuple[str, ...]:
    """What is drawn: the methods, and what they are compared with."""
    return tuple(dict.fromkeys([*asked.methods, CHANCE, BEST]))


def answer_curves(session: Session, asked: CurvesRequest, say: Say) -> None:
    """The curves that need no slow method first."""
    perturbation = perturbation_of(session, asked.perturbation)
    try:
        check_probabilities(session.explainer)
    except ValueError as error:
        raise Refused(str(error)) from error
    request = place(session, asked)
    names = [name for name in curve_names(asked) if name != CHANCE]
    quick = tuple(name for name in names if not METHODS[name].takes_long)
    draw(session, replace(asked, methods=quick), request, perturbation, say, chance_draws(session, request))
    for name in names:
        if name not in quick:
            draw(session, replace(asked, methods=(name,)), request, perturbation, say)


def draw(
    session: Session,
    asked: CurvesRequest,
    request: Request,
    perturbation: Perturbation,
    say: Say,
    draws: Sequence[Explanation] = (),
) -> None:
    """Explain, take away, and tell: the curves of a group share the model's answers."""
    explanations: list[Explanation] = list(draws)
    for one in explain_methods(session, asked, request, say):
        if one.explanation is None:
            say(Failed(one.method, one.error))
        else:
            explanations.append(one.explanation)
    if not explanations:
        return
    with at_each_pass(Counter(asked.methods[0] if asked.methods else CHANCE, None, say)):
        asking = Asking(tokenized_texts=[request.tokenized_text] * len(explanations))
        found = draw_curves(session.explainer, explanations, perturbation, asking=asking)
    for explanation, curve in zip(explanations[len(draws) :], found[len(draws) :], strict=True):
        say(told(explanation.method, [curve]))
    if draws:
        say(told(CHANCE, found[: len(draws)]))


def told(method: str, curves: Sequence[Curve]) -> CurveDrawn:
    """The mean of curves over the same points."""
    probabilities = torch.stack([curve.probabilities for curve in curves])
    return CurveDrawn(
        method=method,
        shares=curves[0].shares.tolist(),
        probabilities=probabilities.mean(0).tolist(),
        aopc=sum(map(aopc, probabilities)) / len(curves),
        log_odds=sum(map(log_odds, probabilities)) / len(curves),
    )


def chance_draws(session: Session, request: Request) -> list[Explanation]:
    method_configs = {str(seed): MethodConfig(METHODS[CHANCE], {"seed": seed}) for seed in range(DRAWS)}
    return list(explain_request(session, request, method_configs).values())
