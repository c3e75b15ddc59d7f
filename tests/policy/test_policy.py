"""The policy: the distribution it speaks of, prompts, the frozen reference, loading and saving."""

import math
from dataclasses import replace

import pytest
import torch

from oncurve.config.schema import ModelConfig
from oncurve.errors import DataError, ModelError
from oncurve.policy.decoding import SharedState, SpreadState
from oncurve.policy.load import load_policy, save_model
from oncurve.policy.policy import MAX_KEPT_PROMPTS, Policy
from oncurve.policy.prompt import Row
from oncurve.types import Task


def test_log_distribution_by_hand():
    logits = torch.tensor([[0.0, math.log(3)], [0.0, math.log(3)], [0.0, math.log(3)]], dtype=torch.float64)
    temperatures = torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64)
    found = Policy.log_distribution(logits, temperatures).exp()
    assert found.flatten().tolist() == pytest.approx([0.25, 0.75, 0.1, 0.9, 0.25, 0.75])


def test_a_flat_head_gives_the_uniform_distribution_over_what_is_allowed(make_policy, tasks):
    policy = make_policy()
    with torch.no_grad():
        policy.model.get_output_embeddings().weight.zero_()
    num_allowed = policy.model.config.get_text_config().vocab_size - len(policy.banned_ids)
    row = Row(policy.encode(tasks[0]), ((100, 101), (1,)), (1.0, 0.7))
    found = policy.logps([row])
    assert found.logps_T.tolist() == pytest.approx([-math.log(num_allowed)] * 3, abs=1e-5)
    assert found.entropy_T.tolist() == pytest.approx([math.log(num_allowed)] * 3, abs=1e-5)
    assert not found.entropy_T.requires_grad


def test_distributions_sum_to_1_and_banned_tokens_have_none(policy, tasks):
    row = Row(policy.encode(tasks[0]), ((100, 101),), (0.7,))
    with torch.no_grad():
        logps_TV, targets_T = policy.distributions([row])
        found = policy.logps([row])
    assert targets_T.tolist() == [100, 101]
    assert logps_TV.exp().sum(-1).tolist() == pytest.approx([1, 1], abs=1e-5)
    assert (logps_TV[:, policy.banned_ids] == -torch.inf).all()
    assert found.logps_T.tolist() == pytest.approx([logps_TV[0, 100].item(), logps_TV[1, 101].item()])
    finite = logps_TV.exp() > 0
    entropy = [-(row[kept].exp() * row[kept]).sum().item() for row, kept in zip(logps_TV, finite, strict=True)]
    assert found.entropy_T.tolist() == pytest.approx(entropy, abs=1e-4)


def test_what_is_banned_and_what_ends(policy):
    names = {token: policy.tokenizer.convert_tokens_to_ids(token) for token in ("<image>", "<user>", "<pad>", "<eos>")}
    banned = set(policy.banned_ids.tolist())
    assert {names["<image>"], names["<user>"], names["<pad>"]} <= banned
    assert names["<eos>"] in policy.eos_ids
    assert not policy.eos_ids & banned
    assert not set(policy.tokenizer.convert_tokens_to_ids(["<box>", "</box>", "0.50", ","])) & banned


def test_text_is_without_the_end_token():
    policy = load_policy(ModelConfig(path="builtin:untrained", device="cpu"))
    ids = policy.tokenizer("<box>0.10,0.20,0.30,0.40</box>").input_ids
    assert len(ids) == 9
    assert policy.text([*ids, 1]) == "<box>0.10,0.20,0.30,0.40</box>"
    assert policy.token_texts([*ids[:2], 1]) == ["<box>", "0.10", "<eos>"]


def test_a_prompt_says_what_the_model_saw(policy, tasks):
    prompt = policy.encode(tasks[0])
    assert prompt.text == f"<user>{tasks[0].messages[0].text}<image><assistant>"
    assert prompt.ids.count(policy.tokenizer.convert_tokens_to_ids("<image>")) == 64
    assert prompt.image_hashes == (tasks[0].images[0].sha256,)
    assert prompt.model_image_sizes == ((64, 64),)
    assert prompt.positions.tolist() == [list(range(len(prompt)))]
    assert prompt.next_position == len(prompt)


def test_the_key_tells_images_and_words_apart(policy, tasks):
    first = policy.encode(tasks[0])
    renamed = Task("other", "grounding", tasks[0].messages, tasks[0].truth)
    assert policy.encode(renamed).key == first.key
    assert len({policy.encode(task).key for task in tasks}) == len(tasks)
    assert len({policy.encode(task).batch_key for task in tasks}) == 1


def test_an_encoded_prompt_is_kept_and_the_oldest_goes(make_policy, tasks):
    policy = make_policy()
    first = policy.encode(tasks[0])
    assert policy.encode(tasks[0]) is first
    for i in range(MAX_KEPT_PROMPTS):
        policy.encode(Task(f"t{i}", "grounding", tasks[0].messages, tasks[0].truth))
    assert policy.encode(tasks[0]) is not first


def test_a_kept_prompt_is_not_another_images(policy, tasks):
    (message,) = tasks[0].messages
    other = replace(tasks[0], messages=(replace(message, images=tasks[1].images),))
    assert policy.encode(tasks[0]).image_hashes == (tasks[0].images[0].sha256,)
    assert policy.encode(other).image_hashes == (tasks[1].images[0].sha256,)


def test_a_prompt_that_does_not_fit_is_refused_whole(policy, tasks):
    size = len(policy.encode(tasks[1]))
    assert len(policy.encode(tasks[1], policy.context_tokens - size)) == size
    with pytest.raises(DataError, match=rf"{tasks[1].id}: its prompt has {size} tokens; with 4,?096 new ones"):
        policy.encode(tasks[1], policy.context_tokens)


@pytest.mark.parametrize(("max_new_tokens", "kind"), [(4, SharedState), (4096, SpreadState)])
def test_prefill_and_decode_give_the_logits_of_plain_rows(max_new_tokens, kind, policy, tasks):
    prompts = [policy.encode(task) for task in tasks]
    short, long = min(prompts, key=len), max(prompts, key=len)
    assert len(short) < len(long)
    _, state = policy.prefill([short, long], [2, 1], max_new_tokens)
    assert isinstance(state, kind)
    policy.decode(torch.tensor([100, 200, 300]), state)
    state.keep(torch.tensor([1, 2]))
    logits = policy.decode(torch.tensor([210, 310]), state)
    for prompt, answer, found in ((short, (200, 210), logits[0]), (long, (300, 310), logits[1])):
        with torch.no_grad():
            row = policy.distributions([Row(prompt, ((*answer, 1),), (1.0,))])[0][-1]
        torch.testing.assert_close(found.log_softmax(-1), row, rtol=0, atol=2e-5)


def test_a_prompt_whose_answers_are_all_done_leaves_a_shared_cache(policy, tasks):
    prompts = [policy.encode(task) for task in tasks[:2]]
    _, state = policy.prefill(prompts, [2, 2], 4)
    policy.decode(torch.tensor([100, 200, 300, 400]), state)
    state.keep(torch.tensor([3]))
    logits = policy.decode(torch.tensor([210]), state)
    assert state.owner.shape == (1, max(map(len, prompts)) + 2 + 1)
    with torch.no_grad():
        row = policy.distributions([Row(prompts[1], ((400, 210, 1),), (1.0,))])[0][-1]
    torch.testing.assert_close(logits[0].log_softmax(-1), row, rtol=0, atol=2e-5)


def test_the_reference_stays_while_the_policy_moves(make_policy, tasks, perturb_weights):
    policy = make_policy()
    row = Row(policy.encode(tasks[0]), ((100, 101),), (1.0,))
    before = policy.logps([row]).logps_T.detach()
    policy.freeze_reference()
    perturb_weights(policy.model)
    reference = policy.logps([row], reference=True).logps_T
    assert torch.equal(reference, before)
    assert not reference.requires_grad
    assert (policy.logps([row]).logps_T - before).abs().max() > 0.01


def test_the_seed_draws_the_untrained_weights(make_policy):
    a, b, c = (make_policy(seed=seed).model.get_input_embeddings().weight for seed in (0, 0, 1))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_saved_and_loaded_is_the_same_model(make_policy, tasks, tmp_path):
    policy = make_policy()
    save_model(policy, tmp_path / "model")
    for path in (tmp_path, tmp_path / "model"):
        again = load_policy(ModelConfig(path=str(path), device="cpu"))
        rows = [[Row(p.encode(tasks[0]), ((100, 101),), (1.0,))] for p in (policy, again)]
        assert torch.equal(policy.logps(rows[0]).logps_T, again.logps(rows[1]).logps_T)
        assert again.banned_ids.tolist() == policy.banned_ids.tolist()
        assert again.encode(tasks[0]).ids == policy.encode(tasks[0]).ids


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("builtin:huge", r"builtin:huge: .*no such built-in model.*builtin:tiny, builtin:untrained"),
        ("/nowhere/at/all", r"/nowhere/at/all: .*no such folder"),
    ],
)
def test_a_path_without_model_is_named(path, said):
    with pytest.raises(ModelError, match=said):
        load_policy(ModelConfig(path=path, device="cpu"))


def test_a_folder_without_model_is_named(tmp_path):
    (tmp_path / "config.json").write_text('{"name": "run"}')
    with pytest.raises(ModelError, match="neither a model's folder"):
        load_policy(ModelConfig(path=str(tmp_path), device="cpu"))


def test_a_model_without_chat_template_is_refused(make_policy, tmp_path):
    policy = make_policy()
    save_model(policy, tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match=r"no chat template; save one as chat_template\.jinja"):
        load_policy(ModelConfig(path=str(tmp_path), device="cpu"))
