"""Reads and writes messages with boto3, AWS's own client.

read ENDPOINT QUEUE                     receives one message and prints its text and attributes as JSON
write ENDPOINT QUEUE GROUP TEXT JSON    sends TEXT with the attributes in the JSON object
"""

import json
import sys

import boto3


def sqs(endpoint):
    return boto3.client(
        "sqs", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="key", aws_secret_access_key="secret"
    )


def read(endpoint, queue):
    client = sqs(endpoint)
    url = client.get_queue_url(QueueName=queue)["QueueUrl"]
    answer = client.receive_message(
        QueueUrl=url, MessageAttributeNames=["All"], AttributeNames=["All"], WaitTimeSeconds=10
    )
    for message in answer["Messages"]:
        client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        attributes = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
        print(json.dumps({"text": message["Body"], "attributes": attributes, "system": message["Attributes"]}))


def write(endpoint, queue, group, text, attributes):
    client = sqs(endpoint)
    url = client.get_queue_url(QueueName=queue)["QueueUrl"]
    attributes = {
        name: {"DataType": "String", "StringValue": value} for name, value in json.loads(attributes).items()
    }
    client.send_message(
        QueueUrl=url,
        MessageBody=text,
        MessageGroupId=group,
        MessageDeduplicationId=str(abs(hash((group, text)))),
        MessageAttributes=attributes,
    )


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](*sys.argv[2:])
