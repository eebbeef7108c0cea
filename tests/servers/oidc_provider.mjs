// The OpenID Connect provider of tests, on loopback. Its configuration is the JSON of the file that the command line names:
// port, keys (private JWKs), clients, groups (by account or client).
import { readFileSync } from "node:fs";
import { Provider } from "oidc-provider";

const { port, keys, clients, groups } = JSON.parse(readFileSync(process.argv[2]));
const provider = new Provider(`http://localhost:${port}`, {
  clients,
  jwks: { keys },
  cookies: { keys: ["a secret of tests"] },
  scopes: ["openid", "email", "groups"],
  claims: { openid: ["sub"], email: ["email"], groups: ["groups"] },
  conformIdTokenClaims: false,
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id}@example.org`, groups: groups[id] ?? [] }),
  }),
  extraTokenClaims: (_, token) => ({ groups: groups[token.clientId] ?? [] }),
  features: {
    clientCredentials: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({ scope: "", audience: resource, accessTokenFormat: "jwt" }),
    },
  },
});
provider.listen(port, "localhost");
