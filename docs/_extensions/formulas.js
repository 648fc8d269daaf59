// Answers each line, [formula, whether it stands alone], by a line: {html} or {error}.
const katex = require("../node_modules/katex");
const lines = require("readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const [formula, displayMode] = JSON.parse(line);
  let answer;
  try {
    answer = { html: katex.renderToString(formula, { displayMode, strict: "error" }) };
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
