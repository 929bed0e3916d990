#!/usr/bin/env node
// Makes a new app: copies the template into a folder, installs its packages, and prints the next commands.

import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

const USAGE = `usage: npm create tidewire FOLDER [-- OPTIONS]

  --packages FOLDER  take Tidewire's packages from the files of a release in this folder
  --no-install       do not run npm install
`;
const PROGRAM_PACKAGE = '@tidewire/bin-linux-x64';

/** Ends with a message. */
function refuse(message) {
  console.error(`create-tidewire: ${message}`);
  process.exit(1);
}

function parsed() {
  try {
    const options = { packages: { type: 'string' }, 'no-install': { type: 'boolean' }, help: { type: 'boolean' } };
    return parseArgs({ options, allowPositionals: true });
  } catch (error) {
    return refuse(`${error.message}\n\n${USAGE}`);
  }
}

/** A valid name for package.json. */
function packageName(folder) {
  const name = basename(folder).toLowerCase().replace(/[^a-z0-9-]+/g, '-').replace(/^-+|-+$/g, '');
  return name === '' ? 'app' : name;
}

/** The path of a package's file in a release. */
function released(folder, name, version) {
  const file = resolve(folder, `${name.replace('@', '').replace('/', '-')}-${version}.tgz`);
  return existsSync(file) ? `file:${file}` : refuse(`${file} does not exist; --packages names a folder with the packages of a release`);
}

/** The template's manifest for this app. With `packages`, our packages come from files in that folder. */
function manifest(app, packages, version) {
  const own = JSON.parse(readFileSync(join(app, 'package.json'), 'utf8'));
  own.name = packageName(app);
  if (packages === undefined) return own;
  for (const group of [own.dependencies, own.devDependencies]) {
    const ours = Object.keys(group).filter((name) => name === 'tidewire' || name.startsWith('@tidewire/'));
    for (const name of ours) group[name] = released(packages, name, version);
  }
  // The package `tidewire` depends on it by its version, which a registry might not have.
  own.optionalDependencies = { [PROGRAM_PACKAGE]: released(packages, PROGRAM_PACKAGE, version) };
  return own;
}

const { positionals, values } = parsed();
const [name, ...others] = positionals;
if (values.help) {
  console.log(USAGE);
  process.exit(0);
}
if (name === undefined || others.length > 0) refuse(`name one folder for the new app\n\n${USAGE}`);
const app = resolve(name);
if (existsSync(app) && readdirSync(app).length > 0) refuse(`${app} is not empty; name another folder`);

const home = resolve(import.meta.dirname, '..');
const { version } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
cpSync(join(home, 'template'), app, { recursive: true });
// npm packs no file with the name .gitignore.
renameSync(join(app, 'gitignore'), join(app, '.gitignore'));
writeFileSync(join(app, 'package.json'), `${JSON.stringify(manifest(app, values.packages, version), undefined, 2)}\n`);
if (!values['no-install']) {
  const { status } = spawnSync('npm', ['install', '--no-audit', '--no-fund'], { cwd: app, stdio: 'inherit', shell: process.platform === 'win32' });
  if (status !== 0) refuse(`npm install failed in ${app}; its lines say why`);
}
const install = values['no-install'] ? '  npm install\n' : '';
console.log(`\nThe app is in ${app}. Next:\n\n  cd ${name}\n${install}  npm run dev\n\nThen open the address that Vite prints in two tabs.`);
