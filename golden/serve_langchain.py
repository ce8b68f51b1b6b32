"""Asks `weighbridge serve` with langchain-openai: chats, streams, tools, a JSON schema, log-probabilities, vectors, refusals.

    pip install langchain-openai==1.4.2
    python serve_langchain.py WEIGHBRIDGE MODEL EMBEDDER TEMPLATE

TEMPLATE is a chat template with tools, such as Qwen/Qwen2.5-7B-Instruct's. Each part prints a line; the first that fails ends the script.
"""

import sys

import openai
import pydantic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

from serve_openai import each, run, serving

QUESTION = "What is the capital of France?"


class City(pydantic.BaseModel):
    # Without it any other property is allowed too, and a small model may write them without end.
    model_config = pydantic.ConfigDict(extra="forbid")
    city: str = pydantic.Field(max_length=12)
    big: bool


class Place(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    city: str = pydantic.Field(max_length=12)


@tool(args_schema=Place)
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def chats(program, model):
    with serving(program, model, "--alias", "m") as address:
        chat = ChatOpenAI(base_url=address + "/v1", api_key="none", model="m", temperature=0, max_tokens=24,
                          stream_usage=True)

        def answer():
            said = chat.invoke(QUESTION)
            assert said.content == run(program, model, QUESTION).rstrip("\n"), said
            assert said.usage_metadata["output_tokens"] > 0, said
            assert said.response_metadata["model_name"] == "m", said

        def stream():
            parts = list(chat.stream([SystemMessage("Be short."), HumanMessage(QUESTION)]))
            whole = chat.invoke([SystemMessage("Be short."), HumanMessage(QUESTION)])
            assert "".join(part.content for part in parts) == whole.content
            assert sum(part.content != "" for part in parts) > 2, "it came at once"
            assert sum(part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata) > 0

        def batch():
            told = chat.batch([QUESTION, "Name a colour.", QUESTION])
            assert told[0].content == told[2].content == chat.invoke(QUESTION).content

        def schema():
            said = chat.with_structured_output(City, method="json_schema").invoke("Describe Paris as JSON.")
            assert isinstance(said, City), said

        def logprobs():
            said = chat.bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
            found = said.response_metadata["logprobs"]["content"]
            assert found and all(len(token["top_logprobs"]) == 2 for token in found)

        def legacy():
            text = OpenAI(base_url=address + "/v1", api_key="none", model="m", temperature=0, max_tokens=8)
            assert "Paris" in text.invoke("The capital of France is")

        def refusals():
            for wrong in [{"top_p": 7.0}, {"model": "other"}]:
                try:
                    chat.model_copy(update={"max_retries": 0}).bind(**wrong).invoke(QUESTION)
                except (openai.BadRequestError, openai.NotFoundError) as error:
                    assert next(iter(wrong)) in str(error), error
                else:
                    raise AssertionError(f"that was taken: {wrong}")

        each({"answer": answer, "stream": stream, "batch": batch, "schema": schema, "logprobs": logprobs,
              "legacy": legacy, "refusals": refusals})


def tools(program, model, template):
    with serving(program, model, "--alias", "m", "--chat-template", template, ctx=("--ctx", "2048")) as address:
        chat = ChatOpenAI(base_url=address + "/v1", api_key="none", model="m", temperature=0, max_tokens=64)

        def calls():
            able = chat.bind_tools([weather], tool_choice="weather", strict=True)
            said = able.invoke("How is the weather in Paris?")
            assert isinstance(said, AIMessage) and said.tool_calls[0]["name"] == "weather", said
            assert isinstance(said.tool_calls[0]["args"]["city"], str), said
            told = ToolMessage(weather.invoke(said.tool_calls[0]["args"]), tool_call_id=said.tool_calls[0]["id"])
            end = chat.bind_tools([weather], tool_choice="none")
            assert end.invoke([HumanMessage("How is the weather in Paris?"), said, told]).content

        def streamed():
            whole = None
            for part in chat.bind_tools([weather], tool_choice="any", strict=True).stream("How is the weather in Oslo?"):
                whole = part if whole is None else whole + part
            assert whole.tool_calls[0]["name"] == "weather", whole

        def structured():
            told = chat.with_structured_output(City, method="function_calling", strict=True, include_raw=True)
            said = told.invoke("Describe Paris.")
            assert isinstance(said["parsed"], City), said

        each({"calls": calls, "streamed": streamed, "structured": structured})


def vectors(program, model):
    with serving(program, model, "--alias", "v", ctx=()) as address:
        embedder = OpenAIEmbeddings(base_url=address + "/v1", api_key="none", model="v",
                                    check_embedding_ctx_length=False)

        def documents():
            first, second = embedder.embed_documents(["A cat sits on the mat.", "Rates rose."])
            again = embedder.embed_query("A cat sits on the mat.")
            assert max(abs(a - b) for a, b in zip(first, again, strict=True)) < 1e-6
            assert first != second

        each({"vectors": documents})


def main():
    program, model, embedder, template = sys.argv[1:]
    chats(program, model)
    tools(program, model, template)
    vectors(program, embedder)


if __name__ == "__main__":
    main()
