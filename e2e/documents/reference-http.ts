// `docs/http-reference.md`, generated from the server's description of its HTTP API.

interface Described {
  $ref?: string;
  description?: string;
  summary?: string;
}

interface Schema extends Described {
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  oneOf?: Schema[];
  anyOf?: Schema[];
  additionalProperties?: boolean | Schema;
}

interface Parameter extends Described {
  name: string;
  in: string;
  required?: boolean;
}

interface Body extends Described {
  content?: Record<string, { schema?: Schema }>;
}

interface Operation extends Described {
  parameters?: Parameter[];
  requestBody?: Body;
  responses: Record<string, Body & { headers?: Record<string, Described> }>;
}

export interface OpenApi {
  paths: Record<string, Record<string, Operation | Parameter[]>>;
  components: Record<string, Record<string, Described>>;
}

const METHODS = ['get', 'head', 'post', 'put', 'patch', 'delete'];

export function httpReference(api: OpenApi): string {
  const resolved = <Kind extends Described>(value: Kind): Kind => {
    const [, , kind = '', name = ''] = value.$ref?.split('/') ?? [];
    return value.$ref === undefined ? value : (api.components[kind]?.[name] as Kind);
  };
  const page = [
    '# The operations of the HTTP API',
    '',
    '`npm --prefix e2e run references` generates this page from `/openapi.json`; a running server serves the same description with its own limits. [http-api.md](http-api.md)',
    'explains the operations and shows them in use.',
  ];
  for (const [path, operations] of Object.entries(api.paths)) {
    const shared = (operations['parameters'] ?? []) as Parameter[];
    for (const method of METHODS.filter((name) => operations[name] !== undefined)) {
      const operation = operations[method] as Operation;
      page.push('', `## \`${method.toUpperCase()} ${path}\``, '');
      page.push([`${operation.summary}.`, sentence(operation.description)].join(' ').trim());
      const parameters = [...shared, ...(operation.parameters ?? [])].map(resolved);
      const given = parameters.map(({ name, in: place, required, description }): string[] => [
        `\`${name}\``, `${place}${required ? ', required' : ''}`, description ?? '',
      ]);
      for (const [type, { schema }] of Object.entries(operation.requestBody?.content ?? {})) given.push(['the body', `\`${type}\``, shape(schema)]);
      if (given.length > 0) page.push('', '| Parameter | Where | Means |', '|---|---|---|', ...given.map(row));
      const answers = Object.entries(operation.responses).map(([status, answer]) => {
        const { description, content = {} } = resolved(answer);
        const bodies = Object.entries(content).map(([type, { schema }]) => [`\`${type}\``, shape(schema)].filter((part) => part !== '').join(': '));
        return [status, description ?? '', bodies.join('; ')];
      });
      page.push('', '| Status | When | Body |', '|---|---|---|', ...answers.map(row));
    }
  }
  page.push('', '## Shapes', '', '| Name | Is |', '|---|---|');
  for (const [name, schema] of Object.entries(api.components['schemas'] ?? {})) {
    page.push(row([`\`${name}\``, [sentence(schema.description), shape(schema as Schema)].filter((part) => part !== '').join(' ')]));
  }
  return `${page.join('\n')}\n`;
}

function row(cells: string[]): string {
  return `| ${cells.map((cell) => cell.replaceAll('|', '\\|').replaceAll(/\s+/g, ' ')).join(' | ')} |`;
}

function sentence(text = ''): string {
  return text === '' || text.endsWith('.') ? text : `${text}.`;
}

/** A schema in one line. */
function shape(schema: Schema | undefined): string {
  if (schema === undefined) return '';
  if (schema.$ref !== undefined) return `\`${schema.$ref.split('/').at(-1)}\``;
  if (schema.const !== undefined) return `\`${JSON.stringify(schema.const)}\``;
  if (schema.enum !== undefined) return schema.enum.map((value) => `\`${JSON.stringify(value)}\``).join(' or ');
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices !== undefined) return choices.map(shape).join(', or ');
  if (schema.items !== undefined) return `a list, each ${shape(schema.items) || 'anything'}`;
  const { type, properties, required = [] } = schema;
  if (properties === undefined) return [type ?? []].flat().join(' or ');
  const members = Object.entries(properties).map(([name, member]) => {
    return `\`${name}\`${required.includes(name) ? '' : '?'} ${shape(member)}`.trim();
  });
  return `an object of ${members.join(', ')}`;
}
