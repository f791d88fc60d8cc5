// Validates generated dashboards against JSON Schemas that are made here, at test time, from the
// TypeScript types of Grafana's own package; nothing of it is kept in the repository.
//
//   node check.mjs BUNDLE SARIF
//
// BUNDLE: folder of `sightline-dashboards generate --out BUNDLE --flavor all`; SARIF: file of
// `sightline-dashboards lint --format sarif`. Needs the packages of package.json beside this file.
import Ajv from 'ajv';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createGenerator } from 'ts-json-schema-generator';

const here = dirname(fileURLToPath(import.meta.url));
const [bundle, sarif] = process.argv.slice(2);
const types = '@grafana/schema/dist/types';

// Panel plugin -> its folder, and whether it has options for each field.
const PANELS = {
  stat: ['stat', false],
  gauge: ['gauge', false],
  bargauge: ['bargauge', false],
  timeseries: ['timeseries', true],
  heatmap: ['heatmap', true],
  table: ['table', true],
  barchart: ['barchart', true],
  'state-timeline': ['statetimeline', true],
  text: ['text', false],
};

// Options that Grafana's types ask for and its own exports leave out: they belong to variables of
// kind interval, which these dashboards have none of.
const NOT_OURS = new Set(['auto', 'auto_min', 'auto_count']);

function schemas() {
  const entry = join(here, 'types.ts');
  const lines = [];
  const take = (alias, type, from) => {
    lines.push(`import type { ${type} as From${alias} } from '${from}';`);
    lines.push(`export type ${alias} = From${alias};`);
  };
  take('Classic', 'Dashboard', `${types}/raw/dashboard/x/types.gen`);
  take('V2', 'Spec', `${types}/schema/dashboard/v2/types.spec.gen`);
  take('Sarif', 'Log', 'sarif');
  for (const [plugin, [folder, field]] of Object.entries(PANELS)) {
    const from = `${types}/raw/composable/${folder}/panelcfg/x/types.gen`;
    take(`${name(plugin)}Options`, 'Options', from);
    if (field) take(`${name(plugin)}Field`, 'FieldConfig', from);
  }
  writeFileSync(entry, lines.join('\n') + '\n');
  const tsconfig = join(here, 'tsconfig.json');
  const compilerOptions = {
    module: 'esnext', moduleResolution: 'node', skipLibCheck: true, strict: true, types: [],
  };
  writeFileSync(tsconfig, JSON.stringify({ compilerOptions, files: ['types.ts'] }));
  return createGenerator({
    path: entry, tsconfig, skipTypeCheck: true, additionalProperties: false, topRef: true,
  });
}

const name = (plugin) => plugin.replace(/[^a-z]/g, '');

const generator = schemas();
const ajv = new Ajv({ allErrors: true, strict: false, allowUnionTypes: true });
const validators = new Map();
function validator(type) {
  if (!validators.has(type)) validators.set(type, ajv.compile(relax(generator.createSchema(type))));
  return validators.get(type);
}

// Takes the options of interval variables out of what is required.
function relax(schema) {
  if (Array.isArray(schema)) schema.forEach(relax);
  else if (schema && typeof schema === 'object') {
    if (Array.isArray(schema.required)) {
      schema.required = schema.required.filter((field) => !NOT_OURS.has(field));
    }
    Object.values(schema).forEach(relax);
  }
  return schema;
}

// Errors as lines, the shallowest first: an alternative that fails repeats itself below.
function errors(type, value) {
  const check = validator(type);
  if (check(value)) return [];
  const depth = (error) => error.instancePath.split('/').length;
  return [...check.errors]
    .sort((a, b) => depth(a) - depth(b))
    .map((e) => `${type} ${e.instancePath || '/'} ${e.message} ${JSON.stringify(e.params)}`);
}

const flat = (panels) => panels.flatMap((panel) => [panel, ...flat(panel.panels ?? [])]);

function panelErrors(where, plugin, options, custom) {
  const panel = PANELS[plugin];
  if (!panel) return [`${where}: no types for panel ${plugin}`];
  const found = errors(`${name(plugin)}Options`, options);
  if (panel[1]) found.push(...errors(`${name(plugin)}Field`, custom));
  else if (Object.keys(custom ?? {}).length) found.push(`${plugin} has no options for each field`);
  return found.map((line) => `${where}: ${line}`);
}

// What the Prometheus data source keeps in an annotation of its own; Grafana's types of the
// dashboard know only what all data sources share.
const OF_PROMETHEUS = ['expr', 'step', 'titleFormat', 'textFormat'];

function classicErrors(board) {
  const shared = structuredClone(board);
  const found = [];
  for (const annotation of shared.annotations.list.filter((a) => !a.builtIn)) {
    for (const field of OF_PROMETHEUS) {
      if (typeof annotation[field] !== 'string') found.push(`${annotation.name}: no ${field}`);
      delete annotation[field];
    }
  }
  found.push(...errors('Classic', shared));
  for (const panel of flat(board.panels).filter((panel) => panel.type !== 'row')) {
    const custom = panel.fieldConfig?.defaults?.custom;
    found.push(...panelErrors(`panel ${panel.id}`, panel.type, panel.options, custom));
  }
  return found;
}

function sharedErrors(board) {
  const { __inputs, __requires, __elements, ...rest } = board;
  const found = [];
  const input = __inputs?.[0];
  if (__inputs?.length !== 1 || input.type !== 'datasource' || input.pluginId !== 'prometheus') {
    found.push('__inputs is not one data source');
  }
  const required = new Set((__requires ?? []).map((entry) => `${entry.type} ${entry.id}`));
  const needed = flat(rest.panels).filter((panel) => panel.type !== 'row');
  for (const kind of ['grafana grafana', 'datasource prometheus',
    ...needed.map((panel) => `panel ${panel.type}`)]) {
    if (!required.has(kind)) found.push(`__requires lacks ${kind}`);
  }
  if (JSON.stringify(__elements) !== '{}') found.push('__elements is not empty');
  if (rest.id !== null) found.push('id is not null');
  const text = JSON.stringify(rest);
  if (text.includes('${datasource}')) found.push('a data source is not the input');
  if (!text.includes(`\${${input?.name}}`)) found.push('the input is not used');
  return [...found, ...classicErrors(rest)];
}

function v2Errors(resource) {
  const found = [];
  if (resource.apiVersion !== 'dashboard.grafana.app/v2') found.push('another apiVersion');
  if (resource.kind !== 'Dashboard' || !resource.metadata?.name) found.push('no kind or name');
  found.push(...errors('V2', resource.spec));
  for (const [slug, element] of Object.entries(resource.spec.elements)) {
    const { group, spec } = element.spec.vizConfig;
    const custom = spec.fieldConfig.defaults.custom;
    found.push(...panelErrors(slug, group, spec.options, custom));
  }
  return found;
}

const checks = { classic: classicErrors, shared: sharedErrors, v2: v2Errors };
let failed = 0;
function complain(where, lines) {
  failed += 1;
  console.error(`${where}: ${lines.length} errors`);
  lines.slice(0, 8).forEach((line) => console.error(`  ${line}`));
}

// Every generated dashboard.
const good = {};
const counts = [];
for (const [flavor, check] of Object.entries(checks)) {
  let boards = 0;
  for (const target of readdirSync(join(bundle, flavor))) {
    for (const file of readdirSync(join(bundle, flavor, target))) {
      const board = JSON.parse(readFileSync(join(bundle, flavor, target, file), 'utf8'));
      const found = check(board);
      if (found.length) complain(`${flavor}/${target}/${file}`, found);
      good[flavor] ??= board;
      boards += 1;
    }
  }
  counts.push(`${boards} ${flavor}`);
  if (!boards) complain(flavor, ['no dashboards']);
}

// The report of the lints.
const report = JSON.parse(readFileSync(sarif, 'utf8'));
const reported = errors('Sarif', report);
if (reported.length) complain('SARIF', reported);

// Samples that must be refused: without them, a schema that takes anything would look the same.
const timeseries = (board) => flat(board.panels).find((panel) => panel.type === 'timeseries');
const element = (resource, group) =>
  Object.values(resource.spec.elements).find((one) => one.spec.vizConfig.group === group).spec;
const BROKEN = {
  classic: {
    'typo in a key': (b) => { b.fiscalYearStartMonht = 0; },
    'typo in a unit': (b) => { timeseries(b).fieldConfig.defaults.unti = 's'; },
    'typo in an option': (b) => { timeseries(b).options.legend.showLegnd = true; },
    'typo in a field option': (b) => { timeseries(b).fieldConfig.defaults.custom.lineWitdh = 1; },
    'word that is none': (b) => { timeseries(b).options.tooltip.mode = 'all'; },
    'threshold mode that is none': (b) => { timeseries(b).fieldConfig.defaults.thresholds.mode = 'abs'; },
    'width as a word': (b) => { timeseries(b).gridPos.w = 'six'; },
    'no such panel': (b) => { timeseries(b).type = 'timeserie'; },
    'id as a word': (b) => { timeseries(b).id = 'seven'; },
  },
  shared: {
    'no input': (b) => { delete b.__inputs; },
    'another source': (b) => { timeseries(b).targets[0].datasource.uid = '${datasource}'; },
    'plugin not required': (b) => { b.__requires.pop(); },
    'number given': (b) => { b.id = 7; },
  },
  v2: {
    'typo in a key': (r) => { r.spec.cursorSnyc = 'Off'; },
    'typo in a panel': (r) => { element(r, 'timeseries').titel = 'x'; },
    'typo in an option': (r) => { element(r, 'timeseries').vizConfig.spec.options.legned = {}; },
    'word that is none': (r) => { r.spec.cursorSync = 'Cross'; },
    'refresh that is none': (r) => { r.spec.variables[1].spec.refresh = 'always'; },
    'width as a word': (r) => { r.spec.layout.spec.rows[0].spec.layout.spec.items[0].spec.width = 'six'; },
    'no layout': (r) => { delete r.spec.layout; },
    'another version': (r) => { r.apiVersion = 'dashboard.grafana.app/v1'; },
  },
};
let broken = 0;
for (const [flavor, samples] of Object.entries(BROKEN)) {
  for (const [what, spoil] of Object.entries(samples)) {
    const sample = structuredClone(good[flavor]);
    spoil(sample);
    if (!checks[flavor](sample).length) complain(`${flavor}, ${what}`, ['was not refused']);
    broken += 1;
  }
}
const spoiled = structuredClone(report);
spoiled.runs[0].tool.driver.rules[0].defaultConfiguration.level = 'fatal';
if (!errors('Sarif', spoiled).length) complain('SARIF, word that is none', ['was not refused']);
console.log(`conformance: ${counts.join(', ')}; ${broken + 1} broken samples refused`);
console.log(`${counts.length + broken + 2 - failed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
