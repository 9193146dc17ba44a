// The suite imports fs.globSync, which node has since 22, and which it uses for no scenario.
import { register } from 'node:module';
register('data:text/javascript,' + encodeURIComponent(`
export async function resolve(s, c, n) {
  if (s === 'fs' && c.parentURL && c.parentURL.includes('/conformance/'))
    return { url: 'data:text/javascript,' + encodeURIComponent("export * from 'node:fs'; export { default } from 'node:fs'; export const globSync = () => [];"), shortCircuit: true };
  return n(s, c);
}`));
