// A real OpenID provider on loopback, controlled over standard input.
//
// It first prints the issuer's URL. Then it reads one command per line and answers each with
// one line of JSON.
//
//   id-token <account> [<agent>]   signs <account> in with the authorization code flow; the
//                                  token names the agent <agent>, if one is given
//   access-token                   issues a JWT access token with client credentials
//   rotate                         signs with a new key; the old keys stay published
//   retire                         publishes only the newest key

import { createServer } from 'node:http';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';

import Provider from 'oidc-provider';

// Keeps the provider's notices out of the answers on standard output.
console.info = console.error;

const AUDIENCE = 'urn:tollgate';
const CLIENT = { client_id: 'gate', client_secret: 'only-for-tests' };
const AGENT = 'https://gitlab.org/claims/clusters/agents/k8s-proxy';
const CALLBACK = 'https://gate.example/callback';

const server = createServer((request, response) => handler(request, response));
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
// The agent that each account chose, as on a page of a real provider.
const agents = new Map();
let keys = [newKey()];
let handler = newProvider();

function newKey() {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  return { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid: randomUUID() };
}

function newProvider() {
  const provider = new Provider(issuer, {
    jwks: { keys },
    cookies: { keys: ['only-for-tests'] },
    clients: [
      {
        ...CLIENT,
        redirect_uris: [CALLBACK],
        grant_types: ['authorization_code', 'client_credentials'],
        response_types: ['code'],
      },
    ],
    pkce: { required: () => false },
    conformIdTokenClaims: false,
    claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'], k8s_proxy: [AGENT] },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({
          scope: 'invoke',
          audience: AUDIENCE,
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({
        sub: id,
        email: `${id}@corp.example`,
        email_verified: true,
        groups: ['dev', 'ops'],
        [AGENT]: agents.get(id),
      }),
    }),
    async loadExistingGrant(context) {
      const { provider, client, session } = context.oidc;
      const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope('openid email groups k8s_proxy');
      await grant.save();
      return grant;
    },
  });
  const serve = provider.callback();
  return async (request, response) => {
    const account = new URL(request.url, issuer).searchParams.get('account');
    if (request.url.startsWith('/interaction/') && account) {
      const result = { login: { accountId: account } };
      await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
    } else {
      serve(request, response);
    }
  };
}

// Does what a browser does in the code flow: follows redirects and keeps cookies.
async function signIn(account, scope) {
  const cookies = new Map();
  const query = new URLSearchParams({
    client_id: CLIENT.client_id,
    response_type: 'code',
    redirect_uri: CALLBACK,
    scope,
    state: randomUUID(),
    nonce: randomUUID(),
  });
  let url = new URL(`/auth?${query}`, issuer);
  for (let hop = 0; hop < 6; hop += 1) {
    if (url.pathname.startsWith('/interaction/')) url.searchParams.set('account', account);
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const answer = await fetch(url, { redirect: 'manual', headers: { cookie } });
    for (const line of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      cookies.set(name, value);
    }
    const next = answer.headers.get('location');
    if (!next) throw new Error(`${url.pathname} answered ${answer.status}: ${await answer.text()}`);
    url = new URL(next, issuer);
    if (url.href.startsWith(CALLBACK)) {
      const code = url.searchParams.get('code');
      return (await token({ grant_type: 'authorization_code', code, redirect_uri: CALLBACK })).id_token;
    }
  }
  throw new Error('the code flow did not end after 6 redirects');
}

async function token(parameters) {
  const body = new URLSearchParams({ ...parameters, ...CLIENT });
  const answer = await fetch(new URL('/token', issuer), { method: 'POST', body });
  const result = await answer.json();
  if (!answer.ok) throw new Error(JSON.stringify(result));
  return result;
}

const commands = {
  'id-token': (account, agent) => {
    if (agent) agents.set(account, Number(agent));
    return signIn(account, `openid email groups${agent ? ' k8s_proxy' : ''}`);
  },
  'access-token': async () =>
    (await token({ grant_type: 'client_credentials', resource: AUDIENCE, scope: 'invoke' })).access_token,
  rotate: () => {
    keys = [newKey(), ...keys];
    handler = newProvider();
    return keys.length;
  },
  retire: () => {
    keys = keys.slice(0, 1);
    handler = newProvider();
    return keys.length;
  },
};

console.log(JSON.stringify(issuer));
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...parameters] = line.trim().split(' ');
  try {
    console.log(JSON.stringify(await commands[name](...parameters)));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error) }));
  }
}
process.exit(0);
