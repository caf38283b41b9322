// Builds a component: node build.js PROGRAM WIT OUTPUT
//
// The component does not use WASI. A provider needs neither files nor streams, and gets time and
// randomness from the gateway.

import { writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const [sourcePath, witPath, output] = process.argv.slice(2);
const { component } = await componentize({
  sourcePath,
  witPath,
  worldName: 'guest',
  disableFeatures: ['stdio', 'random', 'clocks', 'http', 'fetch-event'],
});
await writeFile(output, component);
