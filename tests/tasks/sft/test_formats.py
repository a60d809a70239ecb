"""A prompt is written the same way in training and in generation; chats by the template of the tokenizer."""

import pytest
from transformers import AutoTokenizer

from flexmdm.data import TextTokenizer
from flexmdm.tasks.sft.preparation import PromptFormat

TURNS = (("system", "Be brief."), ("user", "Où?"), ("assistant", "Là."), ("user", "Et {prompt} 😀?"))


def test_a_plain_prompt_is_a_line_and_braces_in_it_stay():
    assert PromptFormat().write((("user", "a {prompt} {b}"),)) == "a {prompt} {b}\n"
    assert PromptFormat("{{prompt}} A:").write((("user", "x"),)) == "{x} A:"


def test_a_chat_has_the_tokens_that_hugging_face_gives_it(chat_tokenizer):
    folder = chat_tokenizer()
    tokenizer, theirs = TextTokenizer.named(str(folder)), AutoTokenizer.from_pretrained(folder)
    messages = [{"role": role, "content": content} for role, content in TURNS]
    (ids,) = PromptFormat("chat").encode(tokenizer, [TURNS])
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids.tolist() == list(expected)
    special = theirs.convert_tokens_to_ids(["<s>", "<|system|>", "<|assistant|>"])
    assert [ids[0], ids[1], ids[-1]] == special  # and not their letters


def test_a_chat_template_survives_saving(chat_tokenizer, tmp_path):
    tokenizer = TextTokenizer.named(str(chat_tokenizer()))
    tokenizer.save(tmp_path / "saved")
    again = TextTokenizer.load(tmp_path / "saved")
    assert again.chat == tokenizer.chat and again.to_json() == tokenizer.to_json()
    theirs = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert theirs.chat_template == tokenizer.chat["chat_template"]


def test_of_several_templates_the_default_is_taken(chat_tokenizer):
    folder = chat_tokenizer(template=None)
    config = folder / "tokenizer_config.json"
    assert not TextTokenizer.load(folder).chat
    templates = '[{"name": "tools", "template": "T"}, {"name": "default", "template": "{{ eos_token }}D"}]'
    config.write_text(config.read_text().replace("{", f'{{"chat_template": {templates},', 1))
    assert TextTokenizer.load(folder).write_chat([{"role": "user", "content": "x"}]) == "</s>D"


@pytest.mark.parametrize("style", ["chatty", "", "{question}"])
def test_a_format_without_a_place_for_the_prompt_is_refused(style):
    with pytest.raises(ValueError, match=r"a format is plain, chat, or a text with \{prompt\}"):
        PromptFormat(style)


def test_a_chat_without_a_template_is_refused(chat_tokenizer, make_task):
    tokenizer = chat_tokenizer(template=None)
    with pytest.raises(ValueError, match="the tokenizer has no chat template.*--tokenizer"):
        make_task(tokenizer=str(tokenizer), format="chat")
    for kind in ("auto", "bpe", "characters"):
        with pytest.raises(ValueError, match=f"the tokenizer is {kind}: name one that has a chat template"):
            make_task(tokenizer=kind, format="chat")


def test_a_template_that_refuses_a_conversation_says_why(chat_tokenizer):
    folder = chat_tokenizer(template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ValueError, match="refuses a conversation: roles must alternate"):
        PromptFormat("chat").encode(TextTokenizer.named(str(folder)), [TURNS])
