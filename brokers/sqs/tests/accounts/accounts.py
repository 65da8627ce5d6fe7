"""Accounts and their permissions on a private moto server.

create ENDPOINT                          creates an administrator and the account "shop", turns authentication on, and
                                         prints both keys as JSON
allow ENDPOINT KEY SECRET [ACTION...]    restricts "shop" to these actions, with the administrator's key
"""

import json
import sys
import urllib.request

import boto3


def policy(actions):
    statement = {"Effect": "Allow", "Action": actions or ["iam:GetUser"], "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def iam(endpoint, key, secret):
    return boto3.client(
        "iam", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=key, aws_secret_access_key=secret
    )


def create(endpoint):
    client, keys = iam(endpoint, "any-key", "any-secret"), {}
    for user, actions in [("administrator", ["*"]), ("shop", ["sqs:*"])]:
        client.create_user(UserName=user)
        client.put_user_policy(UserName=user, PolicyName="may", PolicyDocument=policy(actions))
        created = client.create_access_key(UserName=user)["AccessKey"]
        keys[user] = {"key": created["AccessKeyId"], "secret": created["SecretAccessKey"]}
    # moto reads the body only if the content type is not a form.
    request = urllib.request.Request(
        f"{endpoint}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}, method="POST"
    )
    urllib.request.urlopen(request).read()
    print(json.dumps(keys))


def allow(endpoint, key, secret, *actions):
    client = iam(endpoint, key, secret)
    client.put_user_policy(UserName="shop", PolicyName="may", PolicyDocument=policy(list(actions)))


if __name__ == "__main__":
    {"create": create, "allow": allow}[sys.argv[1]](*sys.argv[2:])
