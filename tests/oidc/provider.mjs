// A real OpenID provider on loopback, controlled over standard input.
//
// It first prints the issuer's URL. Then it reads one command per line and answers each with
// one line of JSON.
//
//   id-token <account> [<agent>]   signs <account> in with the authorization code flow; the
//                                  token names the agent <agent>, if one is given
//   access-token                   issues a JWT access token with client credentials
//   register <id> <console>        registers a gateway's console as a client: callback at
//                                  <console>/console/callback/<id>, PKCE required, logout both ways
//   secret <id>                    the secret of such a client
//   log-out <id> <account>         tells the client by the back channel that <account> signed out
//   rotate                         signs with a new key; the old keys stay published
//   retire                         publishes only the newest key

import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
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
let keys = [await newKey()];
// The consoles of gateways.
const consoles = [];
// The session that each client knows of an account, as the ID token's `sid`.
const sids = new Map();
let provider;
let handler = newProvider();

// Web Crypto exports a key on another thread. With `generateKeyPairSync` and `export`, the garbage collector of
// Node.js 20 can wait on the main thread for the lock of the key that this thread holds.
async function newKey() {
  const algorithm = {
    name: 'RSASSA-PKCS1-v1_5',
    modulusLength: 2048,
    publicExponent: new Uint8Array([1, 0, 1]),
    hash: 'SHA-256',
  };
  const { privateKey } = await globalThis.crypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
  const { kty, n, e, d, p, q, dp, dq, qi } = await globalThis.crypto.subtle.exportKey('jwk', privateKey);
  return { kty, n, e, d, p, q, dp, dq, qi, use: 'sig', alg: 'RS256', kid: randomUUID() };
}

function newProvider() {
  provider = new Provider(issuer, {
    jwks: { keys },
    cookies: { keys: ['only-for-tests'] },
    clients: [
      {
        ...CLIENT,
        redirect_uris: [CALLBACK],
        grant_types: ['authorization_code', 'client_credentials'],
        response_types: ['code'],
      },
      ...consoles,
    ],
    pkce: { required: (_, client) => client.clientId !== CLIENT.client_id },
    conformIdTokenClaims: false,
    claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'], k8s_proxy: [AGENT] },
    features: {
      devInteractions: { enabled: false },
      backchannelLogout: { enabled: true },
      rpInitiatedLogout: {
        enabled: true,
        logoutSource: (context, form) => {
          context.body = `<!doctype html><title>Sign out</title>${form}<button form="op.logoutForm" name="logout" value="yes">Sign out</button>`;
        },
      },
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
    // The tests' gateway is at a loopback address, which the provider's own dispatcher refuses.
    fetch: (url, options) => globalThis.fetch(url, { ...options, dispatcher: undefined }),
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
      const { client, session } = context.oidc;
      const existing = session.grantIdFor(client.clientId);
      if (existing) return context.oidc.provider.Grant.find(existing);
      const grant = new context.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope('openid profile email groups k8s_proxy');
      await grant.save();
      return grant;
    },
  });
  provider.on('authorization.success', ({ oidc }) => {
    sids.set(`${oidc.client.clientId} ${oidc.session.accountId}`, oidc.session.sidFor(oidc.client.clientId));
  });
  const current = provider;
  const serve = provider.callback();
  return async (request, response) => {
    const account = new URL(request.url, issuer).searchParams.get('account');
    if (request.url.startsWith('/interaction/') && account === 'nobody') {
      const result = { error: 'access_denied', error_description: 'No <b>such</b> account' };
      await current.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
    } else if (request.url.startsWith('/interaction/') && account) {
      const result = { login: { accountId: account } };
      await current.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
    } else if (request.url.startsWith('/interaction/')) {
      response.setHeader('content-type', 'text/html; charset=utf-8');
      response.end('<!doctype html><title>Identity provider</title><form><input name="account" id="account"><button>Sign in</button></form>');
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
  register: (id, console) => {
    consoles.push({
      client_id: id,
      client_secret: `secret:of ${id}`,
      redirect_uris: [`${console}/console/callback/${id}`],
      post_logout_redirect_uris: [`${console}/console/signed-out`],
      backchannel_logout_uri: `${console}/console/back-channel-logout/${id}`,
      backchannel_logout_session_required: true,
      grant_types: ['authorization_code'],
      response_types: ['code'],
    });
    handler = newProvider();
    return consoles.length;
  },
  secret: (id) => `secret:of ${id}`,
  'log-out': async (id, account) => {
    const client = await provider.Client.find(id);
    await client.backchannelLogout(account, sids.get(`${id} ${account}`));
    return true;
  },
  rotate: async () => {
    keys = [await newKey(), ...keys];
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
    console.log(JSON.stringify({ error: `${error}: ${error.cause ?? ""}` }));
  }
}
process.exit(0);
