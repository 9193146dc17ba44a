// A client of the reference SDK. It knows nothing of Sagenbaum but the names of two tools.
// node client.mjs SDK-FOLDER CONFIGURATION SERVER FILE
import { readFileSync } from 'node:fs';

const [sdk, configuration, name, file] = process.argv.slice(2);
const load = (module) => import(`${sdk}/dist/esm/client/${module}.js`);
const { Client } = await load('index');
const entry = JSON.parse(readFileSync(configuration, 'utf8')).mcpServers[name];

let transport;
if (entry.url) {
  const { StreamableHTTPClientTransport } = await load('streamableHttp');
  transport = new StreamableHTTPClientTransport(new URL(entry.url), {
    requestInit: { headers: entry.headers },
  });
} else {
  const { StdioClientTransport } = await load('stdio');
  transport = new StdioClientTransport({
    command: entry.command,
    args: entry.args,
    env: { ...process.env, ...entry.env },
    stderr: 'inherit',
  });
}
const client = new Client({ name: 'reference', version: '1' });
await client.connect(transport);
const call = async (name, args) => {
  const result = await client.callTool({ name, arguments: args });
  if (result.isError) throw new Error(`${name}: ${JSON.stringify(result.content)}`);
  return result;
};
const { tools } = await client.listTools();
const written = await call('write_file', { path: file, content: 'by the reference client' });
const there = readFileSync(file, 'utf8');
const undone = await call('undo_last', {});
console.log(JSON.stringify({
  server: client.getServerVersion().name,
  tools: tools.map((t) => t.name),
  plan: written._meta['sagenbaum/plan'],
  there,
  undone: undone.structuredContent.undone.map((u) => u.tool),
}));
await client.close();
