#!/usr/bin/env node
/** The `millrace` command: checks Node's version before anything else is loaded, then hands over. */

// Nothing is imported above this: an older Node would fail on it with a message that helps nobody.
const major = Number(process.versions.node.split('.')[0])
if (major >= 24) {
  const { main } = await import('./program.ts')
  await main(process.argv.slice(2))
} else {
  console.error(`error: Millrace needs Node 24 or newer, this is ${process.versions.node}`)
  console.error('  → In this repository: npm ci (without --ignore-scripts) brings Node 24, npm run uses it.')
  console.error('  → Elsewhere: install Node 24, or add it to the project: npm install --save-dev node@24')
  process.exit(3)
}
