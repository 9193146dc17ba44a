// Run by TestTheToolsOfFrameworks of coordinator/door: tools of the packages in node_modules of
// FRAMEWORKS, which call what p.tool returns, and play the model.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

import { Sagenbaum } from "./index.js";

const installed = createRequire(join(process.env.FRAMEWORKS, "package.json"));
const load = (name) => import(pathToFileURL(installed.resolve(name)));

const { z } = await load("zod");
const schema = z.object({ page: z.string() });
const sb = await Sagenbaum.connect();

/** A plan and its tool, which has no answer for the page "bad". */
async function begun(id) {
  const p = await sb.begin({ id });
  const called = [], errors = [];
  const tell = (made) => (...given) => made(...given).catch((e) => { errors.push(e); throw e; });
  const read = tell(p.tool("page.read", async ({ page }, { key, signal }) => {
    assert.match(key, /^[0-9a-f]{32}$/);
    called.push(signal);
    if (page === "bad") throw new Error("no answer");
    return { page };
  }));
  const outcomes = async () => ((await p.get()).acts ?? []).map((act) => act.outcome);
  return { p, read, called, errors, outcomes };
}

test("Vercel AI SDK", async () => {
  const { generateText, stepCountIs, tool } = await load("ai");
  const { MockLanguageModelV3 } = await load("ai/test");
  const { p, read, called, errors, outcomes } = await begun("js-vercel");
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  const says = (content, unified) => ({ content, finishReason: { unified }, usage, warnings: [] });
  const wants = (id, page) => says([{ type: "tool-call", toolCallId: id, toolName: "read",
    input: JSON.stringify({ page }) }], "tool-calls");
  const answers = [wants("a", "one"), wants("b", "bad"), wants("c", "two"),
    says([{ type: "text", text: "done" }], "stop")];
  const late = new AbortController();
  const model = new MockLanguageModelV3({ doGenerate: async () => answers.shift() });
  const { steps, text } = await generateText({ model, prompt: "read", stopWhen: stepCountIs(5), abortSignal: late.signal,
    tools: { read: tool({ description: "reads", inputSchema: schema, execute: read }) } });
  const parts = steps.flatMap((step) => step.content);
  assert.deepEqual(parts.filter((part) => part.type === "tool-error").map((part) => part.error.message), ["no answer"]);
  assert.deepEqual(parts.filter((part) => part.type === "tool-result").map((part) => part.output),
    [{ page: "one" }, { page: "two" }]);
  assert.deepEqual(errors.map((e) => e.message), ["no answer"]);
  assert.deepEqual([text, await outcomes()], ["done", ["completed", "in_doubt", "completed"]]);
  late.abort();
  assert.deepEqual(called.map((signal) => signal.aborted), [true, true, true]);
  await p.fail("a tool had an error");
});

test("LangChain.js and LangGraph", async () => {
  const { tool } = await load("@langchain/core/tools");
  const { AIMessage } = await load("@langchain/core/messages");
  const { ToolNode } = await load("@langchain/langgraph/prebuilt");
  const { p, read, called, outcomes } = await begun("js-langchain");
  const made = tool(read, { name: "read", description: "reads", schema });
  const late = new AbortController();
  for (const config of [undefined, { metadata: { a: 1 }, configurable: { thread_id: "t" }, signal: late.signal }]) {
    assert.deepEqual(await made.invoke({ page: "one" }, config), { page: "one" });
  }
  late.abort();
  assert.equal(called[1].aborted, true);
  await assert.rejects(made.invoke({ page: "bad" }), /no answer/);
  const call = (id, page) => ({ type: "tool_call", id, name: "read", args: { page } });
  const messages = [new AIMessage({ content: "", tool_calls: [call("a", "bad"), call("b", "two")] })];
  const answers = (await new ToolNode([made]).invoke({ messages })).messages;
  assert.deepEqual(answers.map((m) => [m.status, m.content.includes("no answer")]),
    [["error", true], ["success", false]]);
  assert.deepEqual((await outcomes()).sort(), ["completed", "completed", "completed", "in_doubt", "in_doubt"]);
  await assert.rejects(new ToolNode([made], { handleToolErrors: false }).invoke({ messages }), /no answer/);
  await p.fail("a tool had an error");
});

test("OpenAI Agents", async () => {
  const { Agent, run, setTracingDisabled, tool, Usage } = await load("@openai/agents");
  setTracingDisabled(true);
  const { p, read, called, outcomes } = await begun("js-openai");
  const says = (output) => ({ usage: new Usage(), output: [output] });
  const wants = (callId, page) => says({ type: "function_call", callId, name: "read", status: "completed",
    arguments: JSON.stringify({ page }) });
  const answers = [wants("a", "one"), wants("b", "bad"), says({ type: "message", role: "assistant", status: "completed",
    content: [{ type: "output_text", text: "done" }] })];
  const late = new AbortController();
  const agent = new Agent({ name: "reader", model: { getResponse: async () => answers.shift() },
    tools: [tool({ name: "read", description: "reads", parameters: schema, execute: read })] });
  const { finalOutput, newItems } = await run(agent, "read", { signal: late.signal });
  const results = newItems.filter((item) => item.type === "tool_call_output_item").map((item) => item.output);
  assert.equal(results.length, 2);
  assert.deepEqual(results[0], { page: "one" });
  assert.match(results[1], /An error occurred/);
  assert.deepEqual([finalOutput, await outcomes()], ["done", ["completed", "in_doubt"]]);
  late.abort();
  assert.deepEqual(called.map((signal) => signal.aborted), [true, true]);
  answers.push(wants("c", "bad"));
  agent.tools = [tool({ name: "read", description: "reads", parameters: schema, execute: read, errorFunction: null })];
  await assert.rejects(run(agent, "read"), /no answer/);
  await p.fail("a tool had an error");
});
